import { describe, expect, test } from '@jest/globals';
import type { JobAnswer, Observations, WatchItem } from '../../src/backend.js';
import { Handle, JobId, Token } from '../../src/machines/vocabulary.js';
import { createBroker, type Call, type Ending } from '../../src/slurm/broker.js';
import { DEFAULT_LIMITS } from '../../src/slurm/config.js';
import { Poller, type Site } from '../../src/slurm/poll.js';
import { exited, scripted } from './recorded.js';

const US = '\u001f';
const NOW_S = 1_795_969_000;
const NOW_MS = NOW_S * 1000;
const clock = { nowMs: () => NOW_MS, monotonicMs: () => 0, sleep: () => Promise.resolve() };

const jobIdOf = (n: number): JobId => JobId.parse(`job_01${String(n).padStart(24, '0')}`);
const tokenOf = (n: number): Token => Token.parse(`01${String(n).padStart(24, '0')}`);

/** Job `n` under id `100 + n`, or to be found by its token. */
const watched = (n: number, id: number | null = 100 + n, cluster: string | null = null): WatchItem => ({
  jobId: jobIdOf(n),
  token: tokenOf(n),
  handle: id === null ? null : Handle.parse({ id: String(id), cluster, submittedAtMs: NOW_MS - 60_000 }),
  sinceMs: NOW_MS - 60_000,
});

interface Row {
  readonly n: number;
  readonly id?: number;
  readonly state: string;
  readonly reason?: string;
  readonly submittedS?: number;
  readonly endsS?: number;
  readonly name?: string;
  readonly comment?: string;
}

const queueText = (rows: readonly Row[]): string =>
  rows
    .map(
      ({
        n,
        id = 100 + n,
        state,
        reason = 'None',
        submittedS = NOW_S - 50,
        endsS,
        name = `oc-${tokenOf(n)}`,
        comment = name,
      }) => [id, state, submittedS, endsS ?? 'N/A', 'n1', reason, name, comment].join(US),
    )
    .map((line) => `${line}\n`)
    .join('');

interface Account extends Row {
  readonly exit?: string;
  readonly derived?: string;
  readonly startedS?: number;
  readonly limit?: string;
  readonly partition?: string;
}

const accountText = (rows: readonly Account[]): string =>
  rows
    .map(
      ({
        n,
        id = 100 + n,
        state,
        exit = '0:0',
        derived = '0:0',
        submittedS = NOW_S - 50,
        startedS,
        limit = '10',
        name = `oc-${tokenOf(n)}`,
        partition = 'cpu',
      }) =>
        [
          id,
          state,
          exit,
          derived,
          submittedS,
          startedS ?? 'Unknown',
          'Unknown',
          limit,
          partition,
          'n1',
          'lab',
          name,
          '',
        ].join(US),
    )
    .map((line) => `${line}\n`)
    .join('');

interface World {
  readonly queue?: readonly Row[] | Ending;
  readonly accounts?: readonly Account[] | Ending;
  readonly byCluster?: Readonly<Record<string, readonly Row[] | Ending>>;
}

const isEnding = (value: readonly unknown[] | Ending): value is Ending => 'kind' in value;

function world(state: World, options: { readonly clusters?: readonly string[] } = {}) {
  const { run, calls } = scripted((call) => {
    const cluster = call.argv.find((word) => word.startsWith('--clusters='))?.slice('--clusters='.length);
    if (call.command === 'squeue') {
      const rows = (cluster === undefined ? state.queue : state.byCluster?.[cluster]) ?? [];
      return isEnding(rows) ? rows : exited(queueText(rows));
    }
    const rows = state.accounts ?? [];
    return isEnding(rows) ? rows : exited(accountText(rows));
  });
  const poller = new Poller({
    broker: createBroker(run),
    clock,
    uid: 1001,
    jobNamePrefix: 'oc',
    clusters: options.clusters ?? [],
    limits: DEFAULT_LIMITS,
  });
  const observe = (items: readonly WatchItem[], site: Partial<Site> = {}): Promise<Observations> =>
    poller.observe(items, { homeCluster: 'lab', accountingKept: true, clockAheadMs: 0, ...site });
  return { observe, calls, poller };
}

async function one(state: World, item: WatchItem = watched(1), site: Partial<Site> = {}): Promise<JobAnswer> {
  const answer = (await world(state).observe([item], site)).jobs.get(item.jobId);
  if (answer === undefined) throw new Error('no answer');
  return answer;
}

const OUTAGES: readonly (readonly [string, Ending])[] = [
  ['exit 1 with a socket timeout', exited('', 'slurm_load_jobs error: Socket timed out on send/recv operation\n', 1)],
  ['exit 1 with a text that nobody knows', exited('', 'squeue: error: the moon is full\n', 1)],
  ['exit 1 with a half answer', exited(queueText([{ n: 1, state: 'COMPLETED' }]), 'error\n', 1)],
  ['exit 1 without a word', exited('', '', 1)],
  ['exit 1 with a whole answer', exited(queueText([{ n: 1, state: 'COMPLETED' }]), '', 1)],
  ['exit 0 with an error on stderr', exited('', 'squeue: error: Invalid user: science\n')],
  ['exit 0 and an answer that breaks off', exited(queueText([{ n: 1, state: 'COMPLETED' }]).slice(0, -20))],
  ['no answer in time', { kind: 'timedOut', afterMs: 70_000, stdout: '', stderr: '' }],
  ['killed', { kind: 'killed', signal: 'SIGKILL', stdout: '', stderr: '', truncated: false }],
  ['missing from PATH', { kind: 'unreachable', detail: 'squeue: not found on PATH (ENOENT)', stdout: '' }],
];

describe('the queue decides', () => {
  test.each([
    ['RUNNING', { phase: 'Running', ending: false }],
    ['COMPLETING', { phase: 'Running', ending: true }],
    ['PENDING', { phase: 'Pending', waiting: 'queued' }],
    ['COMPLETED', { phase: 'Completed' }],
    ['TIMEOUT', { phase: 'Failed', reason: 'TIME_LIMIT_EXCEEDED' }],
    ['OUT_OF_MEMORY', { phase: 'Failed', reason: 'OUT_OF_MEMORY' }],
    ['CANCELLED', { phase: 'Cancelled', reason: 'ADMIN_CANCELLED' }],
    ['NODE_FAIL', { phase: 'Lost', reason: 'NODE_FAILED' }],
    ['PREEMPTED', { phase: 'Lost', reason: 'PREEMPTED' }],
    ['BOOT_FAIL', { phase: 'Lost', reason: 'NODE_FAILED' }],
  ])('P16, P19: %s counts although accounting does not answer', async (state, expected) => {
    const down = exited('', 'sacct: error: Problem talking to the database: Connection refused\n', 1);
    expect(await one({ queue: [{ n: 1, state }], accounts: down })).toMatchObject({
      kind: 'seen',
      source: 'queue',
      state: expected,
    });
  });

  test.each(['REVOKED', 'FUTURE_STATE', 'OUT_OF_ME+', 'RECONFIG_FAIL'])(
    'P38, P41: %s changes nothing',
    async (state) => {
      expect(await one({ queue: [{ n: 1, state }] })).toMatchObject({ kind: 'unanswered', queueAbsent: false });
    },
  );

  test('P41: a word that is not known is told once', async () => {
    const { observe } = world({ queue: [{ n: 1, state: 'FUTURE_STATE' }] });
    expect((await observe([watched(1)])).oddities[0]).toContain('FUTURE_STATE');
    expect((await observe([watched(1)])).oddities).toEqual([]);
  });

  test('P44, P46: a requeued job is waiting again under its id, and its handle keeps the first submit time', async () => {
    const answer = await one({ queue: [{ n: 1, state: 'PENDING', reason: 'BeginTime', submittedS: NOW_S + 60 }] });
    expect(answer).toMatchObject({
      state: { phase: 'Pending' },
      handle: { id: '101', submittedAtMs: NOW_MS - 60_000 },
    });
  });
});

describe('a failed job', () => {
  const queue = [{ n: 1, state: 'FAILED', reason: 'NonZeroExitCode', endsS: NOW_S - 1 }];

  test.each([
    ['3:0', 'EXIT_NONZERO'],
    ['0:11', 'SIGNALED'],
    ['0:53', 'BOOTSTRAP_FAILED'],
  ])('with exit code %s in the accounts failed with %s', async (exit, reason) => {
    expect(await one({ queue, accounts: [{ n: 1, state: 'FAILED', exit }] })).toMatchObject({
      state: { phase: 'Failed', reason },
    });
  });

  test('is ending as long as accounting has no exit code, and no longer than two minutes', async () => {
    const accounts = [{ n: 1, state: 'RUNNING' }];
    expect(await one({ queue, accounts })).toMatchObject({ state: { phase: 'Running', ending: true } });
    const old = [{ n: 1, state: 'FAILED', reason: 'NonZeroExitCode', endsS: NOW_S - 121 }];
    expect(await one({ queue: old, accounts })).toMatchObject({ state: { phase: 'Failed', reason: 'EXIT_NONZERO' } });
  });

  test('is not settled while accounting does not answer (INV-10)', async () => {
    expect(await one({ queue, accounts: exited('', 'x\n', 1) })).toMatchObject({
      kind: 'unanswered',
      queueAbsent: false,
    });
  });

  test('P20: is settled by the reason where accounting is not kept', async () => {
    const { observe, calls } = world({ queue });
    const answer = (await observe([watched(1)], { accountingKept: false })).jobs.get(jobIdOf(1));
    expect(answer).toMatchObject({ state: { phase: 'Failed', reason: 'EXIT_NONZERO' } });
    expect(calls.map((call) => call.command)).toEqual(['squeue']);
  });
});

describe('a job that left the queue', () => {
  test.each([
    ['COMPLETED', '0:0', { phase: 'Completed' }],
    ['CANCELLED by 1001', '0:0', { phase: 'Cancelled', reason: 'ADMIN_CANCELLED' }],
    ['CANCELLED+', '0:0', { phase: 'Cancelled', reason: 'ADMIN_CANCELLED' }],
    ['TIMEOUT', '0:0', { phase: 'Failed', reason: 'TIME_LIMIT_EXCEEDED' }],
    ['FAILED', '0:53', { phase: 'Failed', reason: 'BOOTSTRAP_FAILED' }],
    ['NODE_FAIL', '1:0', { phase: 'Lost', reason: 'NODE_FAILED' }],
  ])('P11, P13, P37, P40, P45, P51: is settled by the accounts in the same poll: %s', async (state, exit, expected) => {
    const { observe, calls } = world({ accounts: [{ n: 1, state, exit }] });
    const answer = (await observe([watched(1)])).jobs.get(jobIdOf(1));
    expect(answer).toMatchObject({ kind: 'seen', source: 'accounting', state: expected });
    expect(calls.map((call) => call.command)).toEqual(['squeue', 'sacct']);
  });

  test('P39: a step over its memory warns beside the completed job', async () => {
    const answer = await one({ accounts: [{ n: 1, state: 'COMPLETED', derived: '0:125' }] });
    expect(answer).toMatchObject({ state: { phase: 'Completed' }, diagnostics: { derivedExitCode: '0:125' } });
    if (answer.kind === 'seen') expect(answer.warnings).toHaveLength(1);
  });

  test('P46: of several runs the newest decides, in whatever order they come', async () => {
    const runs: Account[] = [
      { n: 1, state: 'NODE_FAIL', submittedS: NOW_S - 50 },
      { n: 1, state: 'REQUEUED', submittedS: NOW_S - 40 },
      { n: 1, state: 'COMPLETED', submittedS: NOW_S - 30 },
    ];
    for (const accounts of [runs, runs.toReversed(), [runs[1], runs[2], runs[0]].flatMap((run) => run ?? [])]) {
      expect(await one({ accounts })).toMatchObject({ state: { phase: 'Completed' } });
    }
  });

  test('is absent, not ended, when neither source knows it (INV-11)', async () => {
    expect(await one({})).toMatchObject({ kind: 'absent', queue: 'absent', accounting: 'absent', limitEndsAtMs: null });
    expect(await one({}, watched(1), { accountingKept: false })).toMatchObject({
      kind: 'absent',
      accounting: 'notKept',
    });
  });

  test('P23: is still active when accounting says so, with the end of its time limit (INV-11)', async () => {
    const accounts = [{ n: 1, state: 'RUNNING', startedS: NOW_S - 40, limit: '10' }];
    expect(await one({ accounts })).toMatchObject({
      accounting: 'stillActive',
      limitEndsAtMs: NOW_MS - 40_000 + 600_000,
    });
    const unlimited = [{ n: 1, state: 'RUNNING', startedS: NOW_S - 40, limit: 'UNLIMITED' }];
    expect(await one({ accounts: unlimited })).toMatchObject({ accounting: 'stillActive', limitEndsAtMs: null });
  });

  test('P22: is not settled by a row that is half made (INV-13)', async () => {
    const accounts = [{ n: 1, state: 'PENDING', name: 'allocation', partition: '' }];
    expect(await one({ accounts })).toMatchObject({ kind: 'unanswered', queueAbsent: true });
  });

  test('P19, P21: stays as it was while accounting does not answer, and the queue\'s "not here" is told (INV-10)', async () => {
    const { observe } = world({
      accounts: exited('', 'sacct: error: Problem talking to the database: Connection refused\n', 1),
    });
    const seen = await observe([watched(1)]);
    expect(seen.jobs.get(jobIdOf(1))).toMatchObject({ kind: 'unanswered', queueAbsent: true });
    expect(seen.queueOutage).toBeNull();
    expect(seen.outage).toMatchObject({ kind: 'unreachable' });
  });
});

describe('an outage changes nothing (INV-10)', () => {
  test.each(OUTAGES)('P09, P15, P16, P17, P18: the queue answers with %s', async (_what, ending) => {
    const { observe } = world({ queue: ending, accounts: [{ n: 1, state: 'COMPLETED' }] });
    const seen = await observe([watched(1), watched(2, null)]);
    for (const answer of seen.jobs.values()) expect(answer).toMatchObject({ kind: 'unanswered', queueAbsent: false });
    expect(seen.jobs.size).toBe(2);
    expect(seen.queueOutage).not.toBeNull();
    expect(seen.outage).toBe(seen.queueOutage);
  });

  test.each(OUTAGES)('accounting answers with %s', async (_what, ending) => {
    const { observe } = world({ accounts: ending });
    const seen = await observe([watched(1), watched(2, null)]);
    for (const answer of seen.jobs.values()) expect(answer).toMatchObject({ kind: 'unanswered', queueAbsent: true });
    expect(seen.queueOutage).toBeNull();
    expect(seen.outage).not.toBeNull();
  });
});

describe('identity is more than a number (INV-13)', () => {
  test("P22: another job's row under our id does not count", async () => {
    const foreign = [{ n: 2, id: 101, state: 'COMPLETED' }];
    expect(await one({ queue: foreign, accounts: foreign })).toMatchObject({ kind: 'absent' });
    const named = [{ n: 1, state: 'COMPLETED', name: 'somebody-else' }];
    expect(await one({ queue: named, accounts: named })).toMatchObject({ kind: 'absent' });
  });

  test('a row of the accounts with our name and another id does not count for a job whose id is known', async () => {
    expect(await one({ accounts: [{ n: 1, id: 999, state: 'COMPLETED' }] })).toMatchObject({ kind: 'absent' });
  });

  test('clocks may be apart by minutes', async () => {
    const early = [{ n: 1, state: 'RUNNING', submittedS: NOW_S - 60 - 500 }];
    expect(await one({ queue: early })).toMatchObject({ kind: 'seen' });
  });
});

describe('clocks that disagree: a row with our token that is older than the job (INV-8, INV-11, INV-13)', () => {
  const DISAGREE = 'the clocks of gateway and cluster disagree';
  const early = (state: string, over: Partial<Row> = {}): readonly Row[] => [
    { n: 1, state, submittedS: NOW_S - 86_400, ...over },
  ];
  const items = [
    ['whose id is known', watched(1)],
    ['to be found by its token', watched(1, null)],
  ] as const;

  test.each(items)('P22: makes a job %s neither over nor absent, in the queue', async (_what, item) => {
    for (const state of ['RUNNING', 'COMPLETED', 'FAILED']) {
      expect(await one({ queue: early(state) }, item)).toMatchObject({ kind: 'unanswered', queueAbsent: false });
    }
  });

  test.each(items)('P22: makes a job %s neither over nor absent, in the accounts', async (_what, item) => {
    for (const state of ['RUNNING', 'COMPLETED', 'FAILED']) {
      expect(await one({ accounts: early(state) }, item)).toMatchObject({ kind: 'unanswered', queueAbsent: true });
    }
  });

  test('is told with both times', async () => {
    const since = new Date(watched(1).sinceMs).toISOString();
    const submitted = new Date(NOW_MS - 86_400_000).toISOString();
    for (const state of [{ queue: early('RUNNING') }, { accounts: early('RUNNING') }]) {
      const answer = await one(state);
      const detail = answer.kind === 'unanswered' ? answer.detail : '';
      expect(detail).toContain(DISAGREE);
      expect(detail).toContain(since);
      expect(detail).toContain(submitted);
    }
  });

  test('is told to the administrator in one text per source, however many jobs there are', async () => {
    const rows = Array.from({ length: 20 }, (_, n) => ({ n, state: 'RUNNING', submittedS: NOW_S - 86_400 - n }));
    for (const state of [{ queue: rows }, { accounts: rows }]) {
      const seen = await world(state).observe(rows.map(({ n }) => watched(n)));
      expect(seen.oddities).toHaveLength(1);
      expect(seen.oddities[0]).toContain(DISAGREE);
      expect(seen.outage).toBeNull();
    }
  });

  test('leaves a failed job unsettled, if it is the newest run that accounting knows', async () => {
    const queue = [{ n: 1, state: 'FAILED', reason: 'NonZeroExitCode', endsS: NOW_S - 500 }];
    const old = { n: 1, state: 'FAILED', exit: '3:0', submittedS: NOW_S - 86_400 };
    const answer = await one({ queue, accounts: [old] });
    expect(answer).toMatchObject({ kind: 'unanswered', queueAbsent: false });
    expect(answer.kind === 'unanswered' ? answer.detail : '').toContain(DISAGREE);
    const both = [old, { n: 1, state: 'FAILED', exit: '0:53' }];
    expect(await one({ queue, accounts: both })).toMatchObject({ state: { reason: 'BOOTSTRAP_FAILED' } });
  });

  test('does not count beside a newer run of the same id, in the accounts', async () => {
    const accounts = [{ n: 1, state: 'COMPLETED' }, ...early('NODE_FAIL')];
    for (const item of [watched(1), watched(1, null)]) {
      expect(await one({ accounts }, item)).toMatchObject({ kind: 'seen', state: { phase: 'Completed' } });
    }
  });

  test('leaves open which of two jobs with its token is the one', async () => {
    const rows = [{ n: 1, state: 'CANCELLED' }, ...early('RUNNING', { id: 999 })];
    expect(await one({ queue: rows })).toMatchObject({ kind: 'unanswered' });
    expect(await one({ queue: rows }, watched(1, null))).toMatchObject({ kind: 'unanswered' });
    expect(await one({ accounts: rows }, watched(1, null))).toMatchObject({ kind: 'unanswered' });
  });

  test('a row with our token and without a submit time is no absence either', async () => {
    const queue = queueText([{ n: 1, state: 'COMPLETED' }]).replace(String(NOW_S - 50), 'Unknown');
    const accounts = accountText([{ n: 1, state: 'COMPLETED' }]).replace(String(NOW_S - 50), 'Unknown');
    for (const state of [{ queue: exited(queue) }, { accounts: exited(accounts) }]) {
      const seen = await world(state).observe([watched(1)]);
      expect(seen.jobs.get(jobIdOf(1))).toMatchObject({ kind: 'unanswered' });
      expect(seen.oddities[0]).toContain('without a submit time');
    }
  });

  test("another token's row says nothing about ours, however old it is", async () => {
    const foreign = [{ n: 2, id: 101, state: 'COMPLETED', submittedS: NOW_S - 86_400 }];
    const seen = await world({ queue: foreign, accounts: foreign }).observe([watched(1)]);
    expect(seen.jobs.get(jobIdOf(1))).toMatchObject({ kind: 'absent', queue: 'absent', accounting: 'absent' });
    expect(seen.oddities).toEqual([]);
  });

  test('the accounts are asked from as much earlier as our clock was found to be ahead', async () => {
    const start = async (clockAheadMs: number) => {
      const { observe, calls } = world({});
      await observe([watched(1)], { clockAheadMs });
      const words = calls.flatMap(({ argv }) => argv).filter((word) => word.startsWith('--starttime='));
      return Date.parse(`${words[0]?.slice('--starttime='.length) ?? ''}Z`);
    };
    expect((await start(0)) - (await start(7_200_000))).toBe(7_200_000);
    expect(await start(-7_200_000)).toBe(await start(0));
  });
});

describe('a lost submission is looked up by its token (INV-8)', () => {
  test.each([
    ['RUNNING', 'Running'],
    ['PENDING', 'Pending'],
    ['COMPLETED', 'Completed'],
  ])('in the queue: %s', async (state, phase) => {
    expect(await one({ queue: [{ n: 1, state }] }, watched(1, null))).toMatchObject({
      kind: 'seen',
      source: 'queue',
      handle: { id: '101', submittedAtMs: NOW_MS - 50_000 },
      state: { phase },
    });
  });

  test('by its comment, where the job was renamed', async () => {
    const queue = [{ n: 1, state: 'RUNNING', name: 'renamed', comment: `oc-${tokenOf(1)}` }];
    expect(await one({ queue }, watched(1, null))).toMatchObject({ kind: 'seen', handle: { id: '101' } });
  });

  test('P13, P64: in the accounts by its name, where the queue has forgotten it and no comment is kept', async () => {
    const { observe, calls } = world({ accounts: [{ n: 1, state: 'COMPLETED' }] });
    const answer = (await observe([watched(1, null)])).jobs.get(jobIdOf(1));
    expect(answer).toMatchObject({
      kind: 'seen',
      source: 'accounting',
      handle: { id: '101' },
      state: { phase: 'Completed' },
    });
    expect(calls[1]?.argv).toContain(`--name=oc-${tokenOf(1)}`);
  });

  test('an active row in the accounts is a find, not an absence', async () => {
    expect(await one({ accounts: [{ n: 1, state: 'PENDING' }] }, watched(1, null))).toMatchObject({
      kind: 'seen',
      source: 'accounting',
      state: { phase: 'Pending' },
    });
  });

  test('P14: of two live jobs the oldest is the answer and the other a duplicate', async () => {
    const queue: Row[] = [
      { n: 1, id: 8, state: 'RUNNING', submittedS: NOW_S - 20 },
      { n: 1, id: 9, state: 'PENDING', submittedS: NOW_S - 30 },
      { n: 1, id: 7, state: 'RUNNING', submittedS: NOW_S - 20 },
    ];
    for (const rows of [queue, queue.toReversed()]) {
      const answer = await one({ queue: rows }, watched(1, null));
      expect(answer).toMatchObject({ kind: 'seen', handle: { id: '9' } });
      if (answer.kind === 'seen') expect(answer.duplicates.map(({ id }) => id)).toEqual(['7', '8']);
    }
  });

  test('a live job is preferred to a cancelled one with its token, but not to one that did the work', async () => {
    const live: Row = { n: 1, id: 9, state: 'PENDING', submittedS: NOW_S - 20 };
    expect(await one({ queue: [{ n: 1, id: 7, state: 'CANCELLED' }, live] }, watched(1, null))).toMatchObject({
      handle: { id: '9' },
    });
    expect(await one({ queue: [{ n: 1, id: 7, state: 'COMPLETED' }, live] }, watched(1, null))).toMatchObject({
      handle: { id: '7' },
      duplicates: [{ id: '9' }],
    });
  });
});

describe('duplicates of a job that is known (INV-8)', () => {
  test('the job on record counts as oldest also after a requeue moved its submit time', async () => {
    const queue = [
      { n: 1, state: 'PENDING', submittedS: NOW_S - 5 },
      { n: 1, id: 999, state: 'RUNNING', submittedS: NOW_S - 30 },
    ];
    expect(await one({ queue })).toMatchObject({ handle: { id: '101' }, duplicates: [{ id: '999' }] });
  });

  test('its end is told together with the others that live on', async () => {
    const queue = [
      { n: 1, state: 'COMPLETED' },
      { n: 1, id: 999, state: 'PENDING', submittedS: NOW_S - 30 },
    ];
    expect(await one({ queue })).toMatchObject({ state: { phase: 'Completed' }, duplicates: [{ id: '999' }] });
  });

  test('when its id is nowhere, the live job with its token is the one', async () => {
    const queue = [{ n: 1, id: 999, state: 'RUNNING', submittedS: NOW_S - 30 }];
    expect(await one({ queue })).toMatchObject({ kind: 'seen', handle: { id: '999' }, duplicates: [] });
  });
});

describe('what a poll costs', () => {
  test('P62: nothing to watch: no call', async () => {
    const { observe, calls } = world({});
    await observe([]);
    expect(calls).toEqual([]);
  });

  test.each([1, 100, 5_000])('P62: %i jobs that are there and live: one call', async (count) => {
    const items = Array.from({ length: count }, (_, n) => watched(n));
    const { observe, calls } = world({ queue: items.map((_, n) => ({ n, state: 'RUNNING' })) });
    const seen = await observe(items);
    expect(calls.map((call) => call.command)).toEqual(['squeue']);
    expect([...seen.jobs.values()].every((answer) => answer.kind === 'seen')).toBe(true);
    expect(seen.jobs.size).toBe(count);
  });

  test('P28, P62: jobs that left and jobs to be found: one call more for each kind, in parts that fit', async () => {
    const left = Array.from({ length: 300 }, (_, n) => watched(n));
    const lost = Array.from({ length: 300 }, (_, n) => watched(1_000 + n, null));
    const few = world({});
    await few.observe([...left, ...lost]);
    expect(few.calls.map((call) => call.command)).toEqual(['squeue', 'sacct', 'sacct']);
    const many = world({});
    await many.observe(Array.from({ length: 10_000 }, (_, n) => watched(n, null)));
    const sacct = many.calls.filter((call) => call.command === 'sacct');
    for (const { argv } of sacct) for (const word of argv) expect(word.length).toBeLessThan(128 * 1024);
    expect(sacct.length).toBeLessThan(5);
  });

  test('an answer is made once for as long as its row stays the same', async () => {
    const { observe } = world({ queue: [{ n: 1, state: 'RUNNING' }] });
    const first = (await observe([watched(1)])).jobs.get(jobIdOf(1));
    expect((await observe([watched(1)])).jobs.get(jobIdOf(1))).toBe(first);
  });
});

describe('several clusters', () => {
  const argvOf = (calls: readonly Call[], command: string) =>
    calls
      .filter((call) => call.command === command)
      .map((call) => call.argv.filter((word) => word.startsWith('--clusters=')));

  test('P06, P26: the cluster of a handle is asked by name', async () => {
    const { observe, calls } = world({ byCluster: { nautilus: [{ n: 1, state: 'RUNNING' }] } });
    const seen = await observe([watched(1, 101, 'nautilus')]);
    expect(seen.jobs.get(jobIdOf(1))).toMatchObject({ kind: 'seen', handle: { cluster: 'nautilus' } });
    expect(argvOf(calls, 'squeue')).toEqual([[], ['--clusters=nautilus']]);
  });

  test('P26: a token is looked for on every cluster, and an outage of one is no absence (INV-8, INV-10)', async () => {
    const down = exited('', 'error\n', 1);
    const { observe } = world({ byCluster: { nautilus: down } }, { clusters: ['nautilus'] });
    expect((await observe([watched(1, null)])).jobs.get(jobIdOf(1))).toMatchObject({
      kind: 'unanswered',
      queueAbsent: false,
    });
    const found = world({ byCluster: { nautilus: [{ n: 1, state: 'RUNNING' }] } }, { clusters: ['nautilus'] });
    expect((await found.observe([watched(1, null)])).jobs.get(jobIdOf(1))).toMatchObject({
      handle: { cluster: 'nautilus' },
    });
  });

  test('a job of another cluster under the same id is another job (INV-13)', async () => {
    const { observe } = world(
      { queue: [], byCluster: { nautilus: [{ n: 2, id: 101, state: 'COMPLETED' }] } },
      { clusters: ['nautilus'] },
    );
    expect((await observe([watched(1)])).jobs.get(jobIdOf(1))).toMatchObject({ kind: 'absent' });
  });

  test('an outage of one cluster leaves the jobs of the others alone', async () => {
    const { observe } = world({
      queue: [{ n: 1, state: 'RUNNING' }],
      byCluster: { nautilus: exited('', 'error\n', 1) },
    });
    const seen = await observe([watched(1), watched(2, 102, 'nautilus')]);
    expect(seen.jobs.get(jobIdOf(1))).toMatchObject({ kind: 'seen' });
    expect(seen.jobs.get(jobIdOf(2))).toMatchObject({ kind: 'unanswered' });
  });

  test("the home cluster's own name is not asked twice", async () => {
    const { observe, calls } = world({ queue: [{ n: 1, state: 'RUNNING' }] });
    expect((await observe([watched(1, 101, 'lab')])).jobs.get(jobIdOf(1))).toMatchObject({
      handle: { id: '101', cluster: 'lab' },
    });
    expect(argvOf(calls, 'squeue')).toEqual([[]]);
  });
});
