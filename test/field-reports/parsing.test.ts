import { describe, expect, jest, test } from '@jest/globals';
import type { JobAnswer, Observations, WatchItem } from '../../src/backend.js';
import { contextOf, phaseOf } from '../../src/machines/job-aggregate.js';
import { JobId, Token } from '../../src/machines/vocabulary.js';
import { SLURM_STATES } from '../../src/slurm/states.js';
import { FakeCommands } from '../support/fake-commands.js';
import { accountText, queueStart, queueText, type AccountFields, type QueueFields } from '../support/scheduler-rows.js';
import { exited, ScriptedSlurm, SlurmWorld } from '../support/slurm-world.js';

/** What stands in a row and what it means; docs/field-reports.md has the table. */

jest.setTimeout(60_000);

const US = '\u001f';
const unique = (n: number): string => `01${String(n).padStart(24, '0')}`;
const slurm = new ScriptedSlurm();
const { world } = slurm;
const NOW_MS = world.clock.nowMs();
const name = (n: number): string => `${world.prefix}-${unique(n)}`;
/** Job `n` has the id `100 + n`. */
const item = (n: number): WatchItem => ({
  jobId: JobId.parse(`job_${unique(n)}`),
  token: Token.parse(unique(n)),
  handle: { id: String(100 + n), cluster: null, submittedAtMs: NOW_MS },
  sinceMs: NOW_MS,
});
const queued = (n: number, over: Partial<QueueFields> = {}): QueueFields => ({
  id: String(100 + n),
  state: 'RUNNING',
  submittedAtMs: NOW_MS,
  name: name(n),
  ...over,
});
const accounted = (over: Partial<AccountFields>): AccountFields => ({
  id: '101',
  state: 'COMPLETED',
  submittedAtMs: NOW_MS,
  name: name(1),
  ...over,
});

function look(queue: string, accounts = '', items: readonly WatchItem[] = [item(1)]): Promise<Observations> {
  slurm.meet.squeue = () => exited(queue);
  slurm.meet.sacct = () => exited(accounts);
  return world.slurm.observe(items);
}

/** Job 1 by these rows. */
async function answer(queue: readonly QueueFields[], accounts: readonly AccountFields[] = []): Promise<JobAnswer> {
  const found = (await look(queueText(queue), accountText(accounts))).jobs.get(item(1).jobId);
  if (found === undefined) throw new Error('no answer');
  return found;
}

const fromAccounts = (over: Partial<AccountFields>): Promise<JobAnswer> => answer([], [accounted(over)]);
const failed = (reason: string) => ({ kind: 'seen', state: { phase: 'Failed', reason } });

describe('rows that others wrote something into', () => {
  test.each([
    ['spaces', 'my job with spaces'],
    ['the separator of -P output', 'a|b|c'],
    ['our own separator', `a${US}b`],
    ['a line break in it', 'x\ny'],
    ['a line break at its end', 'x\n'],
  ])('P32: a foreign name with %s spoils no other row', async (_what, foreign) => {
    const rows = [queued(1), queued(50, { name: foreign }), queued(2, { state: 'PENDING', reason: 'Priority' })];
    const { jobs } = await look(queueText(rows), '', [item(1), item(2)]);
    expect([1, 2].map((n) => jobs.get(item(n).jobId))).toMatchObject([
      { kind: 'seen', state: { phase: 'Running' } },
      { kind: 'seen', state: { phase: 'Pending' } },
    ]);
  });

  test('P32: half a row with the id of another job makes that one "don\'t know", never failed', async () => {
    const { jobs } = await look(queueText([queued(1), queued(50, { name: `x\n101${US}FAILED` }), queued(2)]), '', [
      item(1),
      item(2),
    ]);
    expect([1, 2].map((n) => jobs.get(item(n).jobId))).toMatchObject([
      { kind: 'unanswered', queueAbsent: false },
      { kind: 'seen', state: { phase: 'Running' } },
    ]);
  });

  test('P32: a row that cannot be read is told', async () => {
    const { oddities } = await look(queueText([queued(51, { name: `a${US}b` })]));
    expect(oddities).toEqual([expect.stringContaining('instead of')]);
  });

  test('P33: bytes that are not UTF-8, from a real process, spoil no other row', async () => {
    const commands = new FakeCommands();
    const other = new SlurmWorld((clock) => commands.run(clock));
    const ours = (n: number): string => `${other.prefix}-${unique(n)}`;
    const rows = [queued(1, { name: ours(1) }), queued(3, { name: 'caf\u00e9' }), queued(2, { name: ours(2) })];
    // In Latin-1 the é is the single byte 0xE9.
    commands.always('squeue', { stdout: Buffer.from(queueText(rows), 'latin1') });
    const { jobs } = await other.slurm.observe([item(1), item(2)]);
    expect([...jobs.values()].map(({ kind }) => kind)).toEqual(['seen', 'seen']);
  });

  test('P27: our name on an element of an array is nobody of ours, and ends no job', async () => {
    const rows = [accounted({ id: '101_0' }), accounted({ id: '101_[1%1]', state: 'PENDING' })];
    expect(await answer([], rows)).toMatchObject({ kind: 'unanswered' });
  });
});

describe('states', () => {
  test.each(['CANCELLED by 1000', 'CANCELLED+', 'CANCELLED by 4294967294', 'CANCELLED'])(
    'P37: %s is cancelled',
    async (state) => {
      expect(await fromAccounts({ state })).toMatchObject({ kind: 'seen', state: { phase: 'Cancelled' } });
    },
  );

  test.each(['OUT_OF_ME+', 'FUTURE_STATE', 'CANCELLED by nobody', 'completed', ''])(
    'P38, P41: the word %j changes nothing and is told',
    async (state) => {
      const { jobs, oddities } = await look('', accountText([accounted({ state })]));
      expect(jobs.get(item(1).jobId)).toMatchObject({ kind: 'unanswered' });
      expect(oddities).toHaveLength(1);
      expect((await look(queueText([queued(1, { state })]))).jobs.get(item(1).jobId)).toMatchObject({
        kind: 'unanswered',
      });
    },
  );

  test.each([
    ['NODE_FAIL', 'NODE_FAILED'],
    ['PREEMPTED', 'PREEMPTED'],
  ])('P38: %s is read as a whole word', async (state, reason) => {
    expect(await fromAccounts({ state })).toMatchObject({ kind: 'seen', state: { phase: 'Lost', reason } });
  });

  test.each(SLURM_STATES)('P41: %s, which some release prints, has its place in the table', async (state) => {
    const { jobs, oddities } = await look(queueText([queued(1, { state })]), accountText([accounted({ state })]));
    expect(oddities).toEqual([]);
    expect(jobs.get(item(1).jobId)).toBeDefined();
  });

  test('P42: COMPLETING holds the allocation: running, and no result is read', async () => {
    expect(await answer([queued(1, { state: 'COMPLETING' })], [accounted({ state: 'COMPLETED' })])).toMatchObject({
      kind: 'seen',
      state: { phase: 'Running', ending: true },
    });
  });

  test('P42: PENDING, RUNNING, ten times COMPLETING, COMPLETED: running until the end, and read then', async () => {
    const site = new ScriptedSlurm();
    await site.world.offered();
    await site.world.untilPhase('Pending');
    site.set({ state: 'RUNNING', reason: 'None' });
    await site.world.untilPhase('Running');
    site.set({ state: 'COMPLETING' });
    await site.world.untilAskedAgain('squeue', 10);
    expect(phaseOf(await site.world.job())).toBe('Running');
    expect(await site.world.events('result.collected')).toEqual([]);
    site.leave([{ state: 'COMPLETED' }]);
    await site.world.untilDelivered();
    expect((await site.world.events('job.observed')).map(({ phase }) => phase)).toEqual(['Running']);
    expect(phaseOf(await site.world.job())).toBe('Completed');
  });

  test.each(['launch failed requeued held', 'user env retrieval failed requeued held', 'job requeued in held state'])(
    'P47, P48: a job that is "%s" is shown as held at once, and never failed by itself',
    async (reason) => {
      const site = new ScriptedSlurm();
      await site.world.offered();
      await site.world.untilPhase('Pending');
      site.set({ reason });
      await site.world.until((jobs) => jobs.some((job) => contextOf(job).seen?.waiting === 'held'));
      expect(contextOf(await site.world.job()).seen?.why).toContain('held until a person releases it');
      const seen = (await site.world.events('job.observed')).at(-1);
      expect(seen?.diagnostics['reason']).toBe(reason);
      await site.world.run(600_000);
      expect(phaseOf(await site.world.job())).toBe('Pending');
      expect(site.world.asked('scancel')).toEqual([]);
    },
  );

  test('P47: a profile may say after how long held counts as failed', async () => {
    const site = new ScriptedSlurm();
    await site.world.offered(1, { heldFailsAfterS: 600 });
    await site.world.untilPhase('Pending');
    site.set({ reason: 'launch failed requeued held' });
    await site.world.run(500_000);
    expect(phaseOf(await site.world.job())).toBe('Pending');
    await site.world.untilDelivered();
    expect(contextOf(await site.world.job()).reason).toBe('UNSCHEDULABLE');
  });
});

describe('how it ended', () => {
  test('P39: completed with a step that ran out of memory is Completed with a warning', async () => {
    expect(await fromAccounts({ derivedExitCode: '0:125' })).toMatchObject({
      state: { phase: 'Completed' },
      warnings: [expect.stringContaining('out of memory')],
    });
    expect(await fromAccounts({})).toMatchObject({ state: { phase: 'Completed' }, warnings: [] });
  });

  test('P39: out of memory as the state of the job is a failure', async () => {
    expect(await fromAccounts({ state: 'OUT_OF_MEMORY', exitCode: '0:125' })).toMatchObject(failed('OUT_OF_MEMORY'));
  });

  test('P40: TIMEOUT with exit code 0:0 is a failure, and rows of steps are not asked for', async () => {
    expect(await fromAccounts({ state: 'TIMEOUT' })).toMatchObject(failed('TIME_LIMIT_EXCEEDED'));
    expect(world.asked('sacct').every(({ argv }) => argv.includes('--allocations'))).toBe(true);
    const withStep = [
      accounted({ state: 'TIMEOUT' }),
      accounted({ id: '101.batch', state: 'CANCELLED', name: 'batch' }),
    ];
    expect(await answer([], withStep)).toMatchObject(failed('TIME_LIMIT_EXCEEDED'));
  });

  test.each(['None', 'Unknown', 'N/A', ''])('P50: cancelled before it started, with %j for a start', async (noTime) => {
    expect(await fromAccounts({ state: 'CANCELLED by 106', noTime, nodes: 'None assigned' })).toMatchObject({
      kind: 'seen',
      state: { phase: 'Cancelled' },
    });
  });
});

describe('P35: times', () => {
  test('are asked for in seconds since the epoch, in a zone that is named', async () => {
    const commands = new FakeCommands();
    const other = new SlurmWorld((clock) => commands.run(clock));
    const before = process.env['TZ'];
    process.env['TZ'] = 'Asia/Kathmandu';
    try {
      await other.slurm.observe([item(1)]);
    } finally {
      if (before === undefined) delete process.env['TZ'];
      else process.env['TZ'] = before;
    }
    for (const command of ['squeue', 'sacct'] as const) {
      expect(commands.calls(command)[0]?.environment).toMatchObject({ TZ: 'UTC', SLURM_TIME_FORMAT: '%s' });
    }
  });

  test.each(['Unknown', 'None', 'N/A', '', '2026-11-29T17:00:00', '-5'])(
    'a submit time of %j proves nothing about whose row it is, and no absence (INV-11)',
    async (submitted) => {
      const [id = '', state = '', , ...rest] = queueStart(queued(1)).split(US);
      const row = [id, state, submitted, ...rest, name(1), name(1)].join(US);
      const { jobs } = await look(`${row}\n`);
      expect(jobs.get(item(1).jobId)).toMatchObject({ kind: 'unanswered', queueAbsent: false });
    },
  );
});
