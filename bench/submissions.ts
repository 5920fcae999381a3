import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import type { Bench } from './support/bench.js';
import { cancelJobs, command } from './support/cluster.js';
import { atLeast, compared, median } from './support/figures.js';
import { rate, took } from './support/measure.js';
import type { Answer, Order } from './submitting-worker.js';

const ROUNDS = 9;
const PER_ROUND = 40;

/** The whole way from a lease to an accepted submission, against a loop that submits the same script. */
export const submissions: Bench = {
  name: 'submissions',
  summary: 'submissions per second, durable appends and job directory included, against a plain sbatch loop',
  needsCluster: true,
  run: async ({ directory, divisor }) => {
    const count = Math.ceil(PER_ROUND / divisor);
    const script = join(directory, 'plain.sh');
    const figures = [];
    for (const width of [1, 8]) {
      const worker = await SubmittingWorker.start(join(directory, `width-${width}`), width);
      const rounds: { ours: number; raw: number; cpuMs: number }[] = [];
      try {
        const first = await worker.submit(1);
        copyFileSync(first.script, script);
        await cancelJobs(first.ids);
        for (let round = 0; round < ROUNDS; round += 1) {
          const raw = await plainLoop(script, count, width);
          const ours = await worker.submit(count);
          rounds.push({ ours: rate(count, ours.wallMs), raw: rate(count, raw.wallMs), cpuMs: ours.cpuMs / count });
          await cancelJobs([...raw.ids, ...ours.ids]);
        }
      } finally {
        await worker.stop();
      }
      const { note, ...figure } = compared(rounds);
      figures.push({
        ...figure,
        what: width === 1 ? 'submissions, one by one' : `submissions, ${width} at a time`,
        unit: '/s',
        aim: atLeast(0.9, 'ratio'),
        note: `${note}; own CPU ${median(rounds.map(({ cpuMs }) => cpuMs)).toFixed(1)} ms each`,
      });
    }
    return figures;
  },
};

/** A process as the worker's: what a fork of it costs depends on its memory. */
class SubmittingWorker {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static async start(directory: string, width: number): Promise<SubmittingWorker> {
    const program = fileURLToPath(new URL('submitting-worker.js', import.meta.url));
    const worker = new SubmittingWorker(fork(program, ['worker', directory, String(width)]));
    await worker.#answer();
    return worker;
  }

  async submit(count: number): Promise<Answer> {
    const order: Order = { count };
    this.#child.send(order);
    return await this.#answer();
  }

  async stop(): Promise<void> {
    if (!this.#child.connected) return;
    const exited = once(this.#child, 'exit');
    this.#child.disconnect();
    await exited;
  }

  async #answer(): Promise<Answer> {
    return await new Promise((resolve, reject) => {
      const ended = (): void => reject(new Error('the submitting process ended'));
      this.#child.once('exit', ended);
      this.#child.once('message', (answer: Answer) => {
        this.#child.off('exit', ended);
        resolve(answer);
      });
    });
  }
}

/** What somebody would do by hand: a shell loop, or xargs for several at a time. */
async function plainLoop(
  script: string,
  count: number,
  width: number,
): Promise<{ wallMs: number; ids: readonly string[] }> {
  const one = `sbatch --parsable --output=/dev/null '${script}'`;
  const text =
    width === 1 ? `for n in $(seq ${count}); do ${one}; done` : `seq ${count} | xargs -P ${width} -I '{}' ${one}`;
  const { value, wallMs } = await took(() => command('sh', '-c', text));
  const ids = value.split('\n').filter((line) => line !== '');
  if (ids.length !== count) throw new Error(`${ids.length} of ${count} plain submissions were accepted`);
  return { wallMs, ids };
}
