import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import type { Call, Ending } from '../../src/slurm/broker.js';

const FIXTURES = fileURLToPath(new URL('../../fixtures/', import.meta.url));
export const RELEASES = ['22.05', '24.11', '26.05'] as const;
export type Release = (typeof RELEASES)[number];

const Recording = z.object({
  argv: z.array(z.string()),
  exitCode: z.int(),
  ms: z.number(),
  stdout: z.string(),
  stderr: z.string(),
});

export interface Recorded extends z.infer<typeof Recording> {
  readonly release: Release;
  /** Within the release's folder, e.g. `submit/ok.json`. */
  readonly path: string;
}

/** Every recording of a release. */
export function recordings(release: Release): readonly Recorded[] {
  const folder = `${FIXTURES}slurm-${release}`;
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.json'))
    .sort()
    .map((path) => ({
      release,
      path,
      ...Recording.parse(JSON.parse(readFileSync(`${folder}/${path}`, 'utf8'))),
    }));
}

export function recording(release: Release, path: string): Recorded {
  const found = recordings(release).find((one) => one.path === path);
  if (found === undefined) throw new Error(`there is no recording ${release} ${path}`);
  return found;
}

/** The command of a recording, also behind `env` or `sh -c`. */
export function commandOf({ argv }: Recorded): string {
  const words = argv.flatMap((word) => word.split(' '));
  return words.find((word) => ['sbatch', 'squeue', 'sacct', 'scancel', 'srun', 'scontrol'].includes(word)) ?? '';
}

/** How the recorded process ended; the recorder's own `timeout` shows as 124. */
export function endingOf({ exitCode, ms, stdout, stderr }: Recorded): Ending {
  if (exitCode === 124) return { kind: 'timedOut', afterMs: ms, stdout, stderr };
  return { kind: 'exited', exitCode, stdout, stderr, truncated: false };
}

export const exited = (stdout: string, stderr = '', exitCode = 0): Ending => ({
  kind: 'exited',
  exitCode,
  stdout,
  stderr,
  truncated: false,
});

/** A scripted way to the outside: answers from a function, remembers what was asked. */
export function scripted(answer: (call: Call) => Ending): {
  readonly run: (call: Call) => Promise<Ending>;
  readonly calls: Call[];
} {
  const calls: Call[] = [];
  return {
    calls,
    run: (call) => {
      calls.push(call);
      return Promise.resolve(answer(call));
    },
  };
}
