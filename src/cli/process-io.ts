import { isatty, type WriteStream } from 'node:tty';
import { systemClock } from '../runtime/clock.js';
import { systemRandom } from '../runtime/random.js';
import { errnoOf } from './errors.js';
import { EXIT } from './exit-codes.js';
import type { Io, Sink } from './io.js';

const SIGNAL_NUMBERS = { SIGINT: 2, SIGTERM: 15 } as const;
const COLUMNS_ELSEWHERE = 120;
const LAST_ACTS_MS = 2_000;

/**
 * The real process. The first SIGINT or SIGTERM aborts `signal`; a second one ends the process at once. A reader that
 * closes our stdout early (`| head`) ends the process quietly.
 */
export function processIo(): Io {
  // A scheduler makes a job's output files under the mask of whoever submitted it.
  process.umask(0o077);
  const controller = new AbortController();
  let readsStdin = false;
  const closeStdin = (): void => {
    if (readsStdin) process.stdin.destroy();
  };
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(128 + SIGNAL_NUMBERS[name]);
      controller.abort(name);
      // Reading knows of no signal: whoever waits for more gets an error now.
      closeStdin();
    });
  }
  const last = new Set<() => Promise<void>>();
  let isLeaving = false;
  process.stdout.on('error', (error) => {
    if (isLeaving) return;
    isLeaving = true;
    const done = Promise.allSettled([...last].map((run) => run()));
    void Promise.race([done, systemClock.sleep(LAST_ACTS_MS)]).then(() =>
      process.exit(errnoOf(error) === 'EPIPE' ? EXIT.ok : EXIT.failed),
    );
  });
  // Nobody is left to read what we would say about it; the work itself goes on.
  process.stderr.on('error', () => undefined);
  return {
    stdout: sink(process.stdout),
    stderr: sink(process.stderr),
    // Opened only by who reads it.
    get stdin() {
      readsStdin = true;
      return process.stdin;
    },
    closeStdin,
    env: process.env,
    cwd: process.cwd(),
    clock: systemClock,
    random: systemRandom,
    signal: controller.signal,
    beforeExit: (run) => {
      last.add(run);
      return () => void last.delete(run);
    },
  };
}

function sink(stream: WriteStream & { readonly fd: number }): Sink {
  return {
    write: (text) =>
      new Promise((resolve, reject) => {
        stream.write(text, (error) => {
          if (error) reject(error);
          else resolve();
        });
      }),
    isTerminal: isatty(stream.fd),
    get columns() {
      return isatty(stream.fd) ? stream.columns : COLUMNS_ELSEWHERE;
    },
  };
}
