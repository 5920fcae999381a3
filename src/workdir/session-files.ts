import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makePrivateDirectory, putFile, replaceFile, type JobFiles, type PrepareDirectory } from './directory.js';
import { errnoOf, ioFailure, messageOf, type IoFailure } from './io-error.js';

/** What a session's job has in its directory beside the files of every job. */
export interface SessionFiles {
  /** The copy of the agent. */
  readonly agent: string;
  /** What the agents read when they start: `AgentSettings`. */
  readonly config: string;
  readonly credentials: string;
  /** Where a rank finds its credential; `{rank}` stands for its number. */
  readonly credentialTemplate: string;
}

export function sessionFiles({ directory }: Pick<JobFiles, 'directory'>): SessionFiles {
  const credentials = join(directory, 'credentials');
  return {
    agent: join(directory, 'agent.mjs'),
    config: join(directory, 'agent.json'),
    credentials,
    credentialTemplate: join(credentials, 'rank-{rank}'),
  };
}

/** What agents are told: where to dial, whom to trust (PEM; null: plain TCP), where they work, and where their credential is. */
export interface AgentSettings {
  readonly host: string;
  readonly port: number;
  readonly trust: string | null;
  readonly directory: string;
  readonly credentials: string;
  /** An agent that nobody has reached for this long ends, s: no user can have used the session. */
  readonly aloneLimitS: number;
}

export interface SessionContents {
  /** The agent that came with this program, copied; null: the profile names one of its own. */
  readonly agentSource: string | null;
  readonly parameters: unknown;
  readonly settings: Omit<AgentSettings, 'directory' | 'credentials'>;
}

/** Makes the directory of a session's job, mode 0700. May be repeated: files are replaced as a whole. */
export async function prepareSession(files: JobFiles, contents: SessionContents): Promise<PrepareDirectory> {
  const { agent, config, credentials, credentialTemplate } = sessionFiles(files);
  const { agentSource, parameters, settings } = contents;
  try {
    const program = agentSource === null ? null : await readAgent(agentSource);
    if (program !== null && !Buffer.isBuffer(program)) return program;
    await makePrivateDirectory(files.directory);
    await makePrivateDirectory(credentials);
    await putFile(files.input, `${JSON.stringify(parameters ?? {})}\n`, 0o600);
    const { directory } = files;
    const told: AgentSettings = { ...settings, directory, credentials: credentialTemplate };
    await putFile(config, `${JSON.stringify(told)}\n`, 0o600);
    if (program !== null) await putFile(agent, program, 0o500);
    return { kind: 'ok' };
  } catch (error) {
    return ioFailure(`preparing the session directory ${files.directory}`, error);
  }
}

async function readAgent(path: string): Promise<Buffer | PrepareDirectory> {
  try {
    return await readFile(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
    return { kind: 'invalidSpec', detail: `the agent ${path} is missing: ${messageOf(error)}` };
  }
}

export type CredentialWritten = { readonly kind: 'ok' } | IoFailure;

/** Gives a rank its credential, mode 0600, in the place of the one before. */
export async function putCredential(files: JobFiles, rank: number, text: string): Promise<CredentialWritten> {
  const path = sessionFiles(files).credentialTemplate.replace('{rank}', String(rank));
  try {
    await replaceFile(path, `${text}\n`, 0o600);
    return { kind: 'ok' };
  } catch (error) {
    return ioFailure(`writing the credential of rank ${String(rank)}`, error);
  }
}
