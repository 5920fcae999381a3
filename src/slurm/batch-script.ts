import { dirname } from 'node:path';
import type { SubmitRequest } from '../backend.js';
import { jobFiles, type JobFiles } from '../workdir/directory.js';
import { jobScriptBody } from '../workdir/script.js';
import { readDirectives } from './directives.js';
import { COMMAND_ONLY_VARIABLES } from './environment.js';
import type { Host } from './host.js';
import { sessionLauncher } from './session-launcher.js';

export type BatchScript =
  | { readonly kind: 'ok'; readonly text: string }
  /** The profile's script asks for what cannot be given: trying again does not help. */
  | { readonly kind: 'invalidSpec'; readonly detail: string };

/** The files of a request's directory. */
export const filesOf = (request: SubmitRequest): JobFiles => jobFiles(dirname(request.directory), request.jobId);

/**
 * The text that is submitted: the `#SBATCH` lines of the profile's copy, which is what runs, and the body that every
 * backend shares. Options on the command line of sbatch win over these lines.
 */
export async function batchScript(request: SubmitRequest, host: Pick<Host, 'readText'>): Promise<BatchScript> {
  const files = filesOf(request);
  // What a session's job runs is ours, and has no such lines: its size is the profile's own to say.
  const { lines, problems } =
    request.session === null ? readDirectives(await host.readText(files.profile)) : { lines: [], problems: [] };
  if (problems.length > 0) {
    return {
      kind: 'invalidSpec',
      detail: `profile ${request.profile.name}: ${request.profile.scriptPath ?? 'no script'}, ${problems.join('; ')}`,
    };
  }
  const body = jobScriptBody({
    files,
    token: request.token,
    // The same again when the job is requeued; ids are used again, but not for a job with this directory.
    identity: '"${SLURM_JOB_ID:-}"',
    unset: COMMAND_ONLY_VARIABLES,
    environment: request.profile.environment,
  });
  // The profile's lines are bytes, read as latin1; paths and values are text.
  const bodyBytes = Buffer.from(body, 'utf8').toString('latin1');
  return { kind: 'ok', text: ['#!/bin/sh', ...lines, '', bodyBytes].join('\n') };
}

/**
 * Writes `run.sh`, and for a session what it starts. Throws a file system error. A profile that is not fit gets none: the
 * submission says why.
 */
export async function writeBatchScript(
  request: SubmitRequest,
  host: Host,
  options: { readonly overlap: boolean },
): Promise<BatchScript> {
  const { session, profile } = request;
  if (session !== null)
    await host.writeScript(filesOf(request).profile, sessionLauncher({ session, profile }, options));
  const script = await batchScript(request, host);
  if (script.kind === 'ok') await host.writeScript(filesOf(request).script, script.text);
  return script;
}
