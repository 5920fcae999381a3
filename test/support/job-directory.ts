import { afterAll } from '@jest/globals';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemRandom, uniquePart } from '../../src/runtime/random.js';
import { checkRunsDirectory } from '../../src/workdir/runs-directory.js';
import { jobFiles, prepareDirectory, type JobFiles } from '../../src/workdir/directory.js';
import { JobId, Token } from '../../src/machines/vocabulary.js';

/** A token that nothing else has, in this run of the tests or another. */
export const nextToken = (): Token => Token.parse(uniquePart(Date.now(), systemRandom));

export const jobIdOf = (token: Token): JobId => JobId.parse(`job_${token}`);

const made: string[] = [];
afterAll(() => {
  for (const path of made.splice(0)) rmSync(path, { recursive: true, force: true });
});

/** An empty directory that is gone after the tests of this file. */
export function freshDirectory(): string {
  const path = mkdtempSync(join(tmpdir(), 'open-compute-test-'));
  made.push(path);
  return path;
}

/** A checked runs directory of this test's own. */
export async function freshRunsDirectory(): Promise<string> {
  const runsDir = join(freshDirectory(), 'runs');
  const check = await checkRunsDirectory(runsDir);
  if (check.kind !== 'ok') throw new Error(check.problem);
  return runsDir;
}

/** A prepared job directory whose profile is this shell text. */
export async function preparedJob(
  runsDir: string,
  profileText: string,
  parameters: unknown = {},
): Promise<{ readonly files: JobFiles; readonly token: Token }> {
  const token = nextToken();
  const scriptPath = join(runsDir, `..`, `profile-${token}.sh`);
  writeFileSync(scriptPath, profileText, { mode: 0o755 });
  const files = jobFiles(runsDir, jobIdOf(token));
  const prepared = await prepareDirectory(files, { parameters, profile: { name: 'test', scriptPath, sha256: null } });
  if (prepared.kind !== 'ok') throw new Error(prepared.detail);
  return { files, token };
}

const NOBODY = 65_534;

/** Runs something without the powers of root, under which no file is unreadable and no directory read-only. */
export async function unprivileged<T>(run: () => Promise<T>): Promise<T> {
  if (process.geteuid?.() !== 0) return await run();
  process.seteuid?.(NOBODY);
  try {
    return await run();
  } finally {
    process.seteuid?.(0);
  }
}
