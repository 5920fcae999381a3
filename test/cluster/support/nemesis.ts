import { systemClock } from '../../../src/runtime/clock.js';
import type { SeededRandom } from '../../support/seeded-random.js';
import type { Gateway } from './gateway.js';
import { asAdmin, ctl } from './site.js';

/** Keeps a fault up, or the stream of tasks at its pace: the length of time is what is wanted here, not a condition. */
export const pause = (ms: number): Promise<void> => systemClock.sleep(ms);

/** One kind of harm: what is done, and how it is made good again. */
interface Harm {
  readonly kind: string;
  /** How often it is chosen, against the others. */
  readonly weight: number;
  readonly secondsMin: number;
  readonly secondsMax: number;
  /** Nothing at all can be asked meanwhile: no phase may change. */
  readonly isOutage: boolean;
  readonly begin: (gateway: Gateway) => Promise<unknown>;
  readonly end: (gateway: Gateway) => Promise<unknown>;
}

const nothing = (): Promise<void> => Promise.resolve();
const lever =
  (...argv: readonly string[]) =>
  (): Promise<void> =>
    ctl(...argv);

/**
 * slurmctld is stopped and frozen but not killed: with SIGKILL it forgets its last seconds, gives ids out again at once,
 * and spoils the accounts of the jobs that had them (seen here: 39 jobs that ran and that nobody knew of any more).
 * Freezing a node's daemon for longer than SlurmdTimeout (10 s) would end its jobs as NODE_FAIL:
 * that is another test.
 */
const HARMS: readonly Harm[] = [
  {
    kind: 'slurmctld stopped',
    weight: 3,
    secondsMin: 3,
    secondsMax: 12,
    isOutage: true,
    begin: lever('stop', 'slurmctld'),
    end: lever('start', 'slurmctld'),
  },
  {
    kind: 'slurmctld frozen',
    weight: 3,
    secondsMin: 3,
    secondsMax: 15,
    isOutage: true,
    begin: lever('freeze', 'slurmctld'),
    end: lever('thaw', 'slurmctld'),
  },
  {
    kind: 'slurmdbd stopped',
    weight: 2,
    secondsMin: 3,
    secondsMax: 15,
    isOutage: false,
    begin: lever('stop', 'slurmdbd'),
    end: lever('start', 'slurmdbd'),
  },
  {
    kind: 'slurmdbd frozen',
    weight: 1,
    secondsMin: 3,
    secondsMax: 10,
    isOutage: false,
    begin: lever('freeze', 'slurmdbd'),
    end: lever('thaw', 'slurmdbd'),
  },
  {
    kind: 'munged frozen',
    weight: 1,
    secondsMin: 2,
    secondsMax: 6,
    isOutage: false,
    begin: lever('freeze', 'munged'),
    end: lever('thaw', 'munged'),
  },
  {
    kind: 'slurmd killed',
    weight: 2,
    secondsMin: 1,
    secondsMax: 5,
    isOutage: false,
    begin: lever('kill', 'slurmd.n2'),
    end: lever('start', 'slurmd.n2'),
  },
  {
    kind: 'slurmd frozen',
    weight: 1,
    secondsMin: 1,
    secondsMax: 6,
    isOutage: false,
    begin: lever('freeze', 'slurmd.n3'),
    end: lever('thaw', 'slurmd.n3'),
  },
  {
    kind: 'worker killed',
    weight: 4,
    secondsMin: 0,
    secondsMax: 3,
    isOutage: false,
    begin: (gateway) => gateway.worker.stop('SIGKILL'),
    end: (gateway) => {
      gateway.startWorker();
      return nothing();
    },
  },
  {
    kind: 'coordinator killed',
    weight: 2,
    secondsMin: 0,
    secondsMax: 3,
    isOutage: false,
    begin: (gateway) => gateway.coordinator.stop('SIGKILL'),
    end: (gateway) => gateway.startCoordinator(),
  },
];

/** A span of Unix epoch ms in which nothing could be asked. */
export interface Outage {
  readonly fromMs: number;
  readonly toMs: number;
}

export interface Harmed {
  readonly injected: Readonly<Record<string, number>>;
  readonly outages: readonly Outage[];
}

/** Does harm after harm, each made good before the next, with a breath between, until `untilMs` (Unix epoch ms). */
export async function harm(gateway: Gateway, chance: SeededRandom, untilMs: number): Promise<Harmed> {
  const injected: Record<string, number> = {};
  const outages: Outage[] = [];
  while (Date.now() < untilMs) {
    const { kind, begin, end, secondsMin, secondsMax, isOutage } = pick(chance);
    await begin(gateway);
    const fromMs = Date.now();
    await pause(chance.int(secondsMin * 1000, secondsMax * 1000));
    if (isOutage) outages.push({ fromMs, toMs: Date.now() });
    await end(gateway);
    injected[kind] = (injected[kind] ?? 0) + 1;
    await pause(chance.int(500, 5000));
  }
  return { injected, outages };
}

/** What an administrator does after such a day: all daemons up, nodes back in service, held jobs released. */
export async function tidyUp(): Promise<void> {
  for (const daemon of ['munged', 'slurmdbd', 'slurmctld', 'slurmd.n1', 'slurmd.n2', 'slurmd.n3', 'slurmd.n4']) {
    await ctl('start', daemon);
  }
  for (const line of (await asAdmin('sinfo', '-h', '-N', '-o', '%N %T')).split('\n')) {
    const [node = '', state = ''] = line.split(' ');
    if (/drain|down/.test(state)) await asAdmin('scontrol', 'update', `node=${node}`, 'state=RESUME');
  }
  const held = (await asAdmin('squeue', '-h', '-a', '-t', 'PENDING', '-o', '%i %r')).split('\n');
  for (const line of held.filter((one) => /held/i.test(one)))
    await asAdmin('scontrol', 'release', line.split(' ')[0] ?? '');
}

function pick(chance: SeededRandom): Harm {
  let left = chance.next() * HARMS.reduce((sum, { weight }) => sum + weight, 0);
  for (const one of HARMS) {
    left -= one.weight;
    if (left < 0) return one;
  }
  throw new Error('there is no harm to choose from');
}

/**
 * A wrapper around sbatch, to stand earlier on PATH: now and then the answer is lost, mostly after the job has landed.
 * It counts what it does in files beside itself.
 */
export const lossySbatch = (realSbatch: string): string => `#!/bin/sh
dice=$(od -An -N1 -tu1 /dev/urandom)
here=$(dirname "$0")
lost() {
  echo x >>"$here/lost-$1"
  echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2
  exit 1
}
case $1 in --version) exec ${realSbatch} "$@" ;; esac
if [ "$dice" -lt 20 ]; then ${realSbatch} "$@" >/dev/null 2>&1 && lost after-landing; exit 1; fi
if [ "$dice" -lt 28 ]; then lost before-landing; fi
if [ "$dice" -lt 36 ]; then ${realSbatch} "$@" | cut -c1-1; echo x >>"$here/lost-half-an-answer"; exit 0; fi
exec ${realSbatch} "$@"
`;
