import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { SelfTest } from '../backend.js';
import { JobId, Token } from '../machines/vocabulary.js';
import { jobFiles } from '../workdir/directory.js';
import { messageOf } from '../workdir/io-error.js';
import { readDone, type ReadDone } from '../workdir/markers.js';
import { wakeDirectory } from '../workdir/runs-directory.js';
import { environmentOf, type LocalContext } from './context.js';
import { parseRunIdentity, readBootId, readProcess } from './proc.js';
import { startDetached } from './process.js';
import { runScript } from './run-script.js';

const SAMPLE_TOKEN = Token.parse('0'.repeat(26));
const SAMPLE_JOB = JobId.parse(`job_${SAMPLE_TOKEN}`);
const LIMIT_MS = 10_000;

/**
 * Runs one job of its own from its script to its end marker: that needs sh, the few commands that scripts use, /proc,
 * a process group, and a runs directory that lets files be executed.
 */
export async function selfTest({ runsDir, inherited, clock }: LocalContext): Promise<SelfTest> {
  const home = join(runsDir, `.self-test.${String(process.pid)}`);
  try {
    if ((await readProcess(process.pid)) === null)
      return { kind: 'unfit', problems: ['/proc does not show this process'] };
    const bootId = await readBootId();
    const files = jobFiles(home, SAMPLE_JOB);
    await mkdir(wakeDirectory(home), { recursive: true });
    await mkdir(files.directory);
    await writeFile(files.input, '{}\n');
    await writeFile(files.profile, '#!/bin/sh\ncp "$1" "$2"\n', { mode: 0o500 });
    const profile = { ...SAMPLE_PROFILE, scriptPath: files.profile };
    const request = { jobId: SAMPLE_JOB, token: SAMPLE_TOKEN, directory: files.directory, profile, session: null };
    await writeFile(files.script, runScript({ request, files, timeoutNote: join(home, 'timeout'), killGraceMs: 1000 }));
    const started = await startDetached({
      argv: ['sh', files.script],
      cwd: dirname(files.script),
      environment: environmentOf(inherited, SAMPLE_JOB),
      stdoutPath: files.stdout,
      stderrPath: files.stderr,
    });
    if (started.kind === 'failed') return { kind: 'unfit', problems: [`sh cannot be started: ${started.detail}`] };
    const over = new AbortController();
    const late = clock.sleep(LIMIT_MS, over.signal).then(() => 'late' as const);
    const first = await Promise.race([started.exit, late]);
    over.abort();
    if (first === 'late')
      return { kind: 'timedOut', afterMs: LIMIT_MS, detail: `the sample job in ${home} did not end` };
    const problem = problemOf(await readDone(files), started.pid, bootId);
    if (problem !== null) return { kind: 'unfit', problems: [`${problem} (sample job in ${runsDir})`] };
    return { kind: 'fit', report: { bootId, memoryLimit: 'not enforced' }, warnings: [] };
  } catch (error) {
    return { kind: 'unfit', problems: [`the sample job in ${home} could not be run: ${messageOf(error)}`] };
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

function problemOf(done: ReadDone, pid: number, bootId: string): string | null {
  if (done.kind !== 'ok') return `a job's script left no end marker that can be read: ${JSON.stringify(done)}`;
  const run = parseRunIdentity(done.marker.identity);
  if (run?.pid !== pid || run.bootId !== bootId)
    return `a job names itself ${done.marker.identity}, not ${bootId}.${String(pid)}`;
  if (done.marker.stage !== 'profile' || done.marker.status !== 0) {
    return `a job's script ended with status ${String(done.marker.status)} ${done.marker.detail}; may files be executed there?`;
  }
  return null;
}

const SAMPLE_PROFILE = {
  name: 'self-test',
  description: '',
  sha256: null,
  session: null,
  cpus: null,
  memoryMiB: null,
  gpus: null,
  nodes: null,
  walltimeS: 60,
  heldFailsAfterS: null,
  parametersSchema: null,
  environment: {},
  placement: {},
} as const;
