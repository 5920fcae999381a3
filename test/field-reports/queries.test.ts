import { describe, expect, jest, test } from '@jest/globals';
import type { WatchItem } from '../../src/backend.js';
import { contextOf, phaseOf } from '../../src/machines/job-aggregate.js';
import { JobId, Token } from '../../src/machines/vocabulary.js';
import type { Call, Ending } from '../../src/slurm/broker.js';
import { FakeCommands } from '../support/fake-commands.js';
import { accountText, CONFIG_TEXT, queueText } from '../support/scheduler-rows.js';
import { exited, ScriptedSlurm, SlurmWorld } from '../support/slurm-world.js';

/** What went wrong for others when they asked; docs/field-reports.md has the table. */

// Hours of the world are thousands of rounds, on a machine that may be busy.
jest.setTimeout(60_000);

const MINUTE = 60_000;
const wordOf = (call: Call, option: string): string =>
  call.argv.find((word) => word.startsWith(`${option}=`))?.slice(option.length + 1) ?? '';

/** A job that runs, and everything that happened to it so far. */
async function running(options: ConstructorParameters<typeof ScriptedSlurm>[0] = {}): Promise<ScriptedSlurm> {
  const slurm = new ScriptedSlurm(options);
  await slurm.world.offered();
  await slurm.world.untilPhase('Pending');
  slurm.set({ state: 'RUNNING', reason: 'None' });
  await slurm.world.untilPhase('Running');
  return slurm;
}

const SACCT_REFUSED: Ending = exited(
  '',
  'sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection: Connection refused\n',
  1,
);

describe('a queue that gives no answer changes nothing (INV-10)', () => {
  const invalidId = exited('', 'slurm_load_jobs error: Invalid job id specified\n', 1);

  test.each<readonly [string, Ending]>([
    ['P09: the configuration cannot be read', exited('', 'squeue: fatal: Unable to process configuration file\n', 1)],
    ['P15: exit 1 and "invalid job id" is no end', invalidId],
    ['P16: a timeout is not "finished"', exited('', 'slurm_load_jobs error: Socket timed out on send/recv\n', 1)],
    ['P17: a text that nobody has ever seen', exited('', 'squeue: error: the moon is full\n', 1)],
    ['P18: the controller is being restarted', exited('', 'Unable to contact slurm controller (connect failure)\n', 1)],
  ])('%s', async (_what, ending) => {
    const slurm = await running();
    const { world } = slurm;
    const before = await world.types();
    slurm.meet.squeue = () => ending;
    slurm.meet.sacct = () => SACCT_REFUSED;
    await world.untilAskedAgain('squeue', 10, 1_000);
    expect(await world.types()).toEqual(before);
    expect(phaseOf(await world.job())).toBe('Running');
    const health = (await world.recorded()).filter(({ stream }) => stream === 'backend/slurm');
    expect(health.filter(({ event }) => event.type === 'outage.began')).toHaveLength(1);
    slurm.meet.squeue = () => null;
    slurm.meet.sacct = () => null;
    await world.run(5 * MINUTE);
    expect(await world.types()).toEqual(before);
    slurm.leave([{ state: 'COMPLETED' }]);
    await world.untilDelivered();
    expect(phaseOf(await world.job())).toBe('Completed');
  });

  test('P09: a thousand polls of which every second one fails move no phase', async () => {
    const slurm = await running({ config: { pollMs: 2_000, watchLimitMs: 1e10 } });
    const { world } = slurm;
    const before = await world.types();
    let asked = 0;
    slurm.meet.squeue = () => {
      asked += 1;
      return asked % 2 === 0 ? null : exited('', 'squeue: error: Invalid user: slurm\n', 1);
    };
    await world.untilAskedAgain('squeue', 1_000, 2_000);
    expect(await world.types()).toEqual(before);
  });

  test('P15: no question names a single id to the queue; exit 0 without a row is for accounting to decide', async () => {
    const slurm = await running();
    const { world } = slurm;
    slurm.leave([{ state: 'COMPLETED' }]);
    await world.untilDelivered();
    expect(phaseOf(await world.job())).toBe('Completed');
    const words = world.asked('squeue').flatMap(({ argv }) => argv);
    expect(words.filter((word) => /^(?:-j|--jobs?)/.test(word))).toEqual([]);
  });
});

describe('accounting', () => {
  test('P19: refused for 200 polls: the job that left the queue waits, and then the answer decides', async () => {
    const slurm = await running({ config: { watchLimitMs: 1e10 } });
    const { world } = slurm;
    const before = await world.types();
    slurm.meet.sacct = () => SACCT_REFUSED;
    let polls = 0;
    slurm.meet.squeue = () => {
      polls += 1;
      if (polls === 50) slurm.leave([{ state: 'COMPLETED' }]);
      return null;
    };
    await world.untilAskedAgain('squeue', 200, 2_000);
    expect(await world.types()).toEqual(before);
    slurm.meet.sacct = () => null;
    await world.untilDelivered();
    expect(phaseOf(await world.job())).toBe('Completed');
  });

  test('P20: switched off: found out at the start and said; absent is Lost after the grace, and nothing crashes', async () => {
    const slurm = new ScriptedSlurm();
    slurm.config = CONFIG_TEXT.replace('accounting_storage/slurmdbd', 'accounting_storage/none');
    const { world } = slurm;
    await world.offered();
    expect(world.logged.join('\n')).toContain('accounting is switched off');
    await world.untilPhase('Pending');
    slurm.leave([]);
    const goneAtMs = world.clock.nowMs();
    await world.untilPhase('Lost');
    expect(contextOf(await world.job()).reason).toBe('NOT_FOUND');
    expect(world.clock.nowMs() - goneAtMs).toBeGreaterThanOrEqual(world.slurm.timing.lossGraceMs);
    expect(world.asked('sacct')).toEqual([]);
  });

  test('P20: where only sacct says that it is disabled, that is an outage and never the end of a job', async () => {
    const slurm = await running();
    slurm.meet.sacct = () => exited('', 'Slurm accounting storage is disabled\n', 1);
    slurm.leave([]);
    await slurm.world.run(30 * MINUTE);
    expect(phaseOf(await slurm.world.job())).toBe('Running');
  });

  test('P21, P24: is asked from shortly before the job on; a refusal of the range is an outage, not absence', async () => {
    const slurm = await running();
    const { world } = slurm;
    const createdAtMs = contextOf(await world.job()).createdAtMs;
    slurm.meet.sacct = () => exited('', 'sacct: error: Too wide of a date range in query\n', 1);
    slurm.leave([{ state: 'COMPLETED' }]);
    await world.run(10 * MINUTE);
    expect(phaseOf(await world.job())).toBe('Running');
    for (const call of world.asked('sacct')) {
      const sinceMs = Date.parse(`${wordOf(call, '--starttime')}Z`);
      expect(sinceMs).toBeLessThanOrEqual(createdAtMs);
      expect(sinceMs).toBeGreaterThan(createdAtMs - 3 * 3_600_000);
    }
  });

  test('P24: a job of yesterday evening is found after midnight', async () => {
    const slurm = new ScriptedSlurm();
    const { world } = slurm;
    const midnight = Date.parse('2027-01-16T00:00:00Z');
    world.clock.step(midnight - 3 * MINUTE - world.clock.nowMs());
    await world.offered();
    await world.untilPhase('Pending');
    const endedAtMs = midnight - MINUTE;
    slurm.leave([{ state: 'COMPLETED', endedAtMs }]);
    slurm.meet.sacct = (call) => {
      if (world.clock.nowMs() < midnight) return SACCT_REFUSED;
      // As sacct does it: without a start time its day begins at midnight.
      const since = wordOf(call, '--starttime');
      const sinceMs = since === '' ? midnight : Date.parse(`${since}Z`);
      return sinceMs <= endedAtMs ? null : exited('');
    };
    await world.untilDelivered();
    expect(phaseOf(await world.job())).toBe('Completed');
    expect(world.clock.nowMs()).toBeGreaterThan(midnight);
  });

  test('P23: still RUNNING there after the job left the queue: the phase stays, and the end comes when it comes', async () => {
    const slurm = await running();
    const { world } = slurm;
    const before = await world.types();
    slurm.leave([{ state: 'RUNNING', startedAtMs: world.clock.nowMs() }]);
    await world.untilAskedAgain('sacct', 5);
    expect(await world.types()).toEqual(before);
    slurm.accounted = slurm.accounted.map((row) => ({ ...row, state: 'COMPLETED' }));
    await world.untilDelivered();
    expect(phaseOf(await world.job())).toBe('Completed');
  });

  test('P51: a job that the queue has forgotten is looked for in accounting in the same poll', async () => {
    const slurm = await running();
    const { world } = slurm;
    slurm.leave([{ state: 'COMPLETED' }]);
    const polls = world.asked('squeue').length;
    await world.untilDelivered();
    expect(world.asked('squeue')).toHaveLength(polls + 1);
    expect(world.asked('sacct')).toHaveLength(1);
  });

  test('P28: answers that leave jobs out make none of them lost', async () => {
    const slurm = new ScriptedSlurm();
    const { world } = slurm;
    await world.offered(60);
    await world.until((jobs) => jobs.length === 60 && jobs.every((job) => phaseOf(job) === 'Pending'));
    slurm.leave([{ state: 'COMPLETED' }]);
    slurm.meet.sacct = (call) => {
      const known = wordOf(call, '--jobs').split(',').slice(0, 12);
      return exited(accountText(slurm.accounted.filter(({ id }) => known.includes(id))));
    };
    await world.untilDelivered();
    expect(new Set((await world.jobs()).map(phaseOf))).toEqual(new Set(['Completed']));
  });

  test('P28: ids of twenty thousand jobs go to a real process, and each is asked for once', async () => {
    const commands = new FakeCommands();
    const world = new SlurmWorld((clock) => commands.run(clock));
    const items = Array.from({ length: 20_000 }, (_, n): WatchItem => {
      const unique = `01${String(n).padStart(24, '0')}`;
      const handle = { id: String(10_000_000 + n), cluster: null, submittedAtMs: world.clock.nowMs() };
      return { jobId: JobId.parse(`job_${unique}`), token: Token.parse(unique), handle, sinceMs: handle.submittedAtMs };
    });
    const { outage } = await world.slurm.observe(items);
    expect(outage).toBeNull();
    const asked = commands
      .calls('sacct')
      .flatMap(({ argv }) =>
        argv.flatMap((word) => (word.startsWith('--jobs=') ? word.slice('--jobs='.length).split(',') : [])),
      );
    expect(asked).toHaveLength(20_000);
    expect(new Set(asked).size).toBe(20_000);
  });
});

describe('what is asked', () => {
  test('P25: a job that was moved to another partition is still ours: no question has one in it', async () => {
    const slurm = await running();
    const { world } = slurm;
    // As squeue does it: a partition on the command line leaves out every job of another one.
    slurm.meet.squeue = ({ argv }) => (argv.some((word) => /^(?:-p|--partition)/.test(word)) ? exited('') : null);
    await world.run(10 * MINUTE);
    expect(phaseOf(await world.job())).toBe('Running');
    expect(await world.events('loss.noted')).toEqual([]);
  });

  test('P34: a job in a hidden partition is seen: every question is for all of them', async () => {
    const slurm = new ScriptedSlurm();
    const { world } = slurm;
    slurm.meet.squeue = ({ argv }) => (argv.includes('--all') ? null : exited(''));
    await world.offered();
    await world.untilPhase('Pending');
    slurm.set({ state: 'RUNNING' });
    await world.untilPhase('Running');
  });

  test('P30, P63: no question asks for JSON, or for what has a form of its own in some release', async () => {
    const slurm = await running();
    slurm.leave([{ state: 'COMPLETED' }]);
    await slurm.world.untilDelivered();
    const words = slurm.world.calls.flatMap(({ argv }) => argv);
    expect(words.filter((word) => /json|yaml|ReqMem|Elapsed|[Rr]eqTRES/.test(word))).toEqual([]);
  });

  test('P31: output without end is an outage of the queue, not data', async () => {
    const commands = new FakeCommands();
    const world = new SlurmWorld((clock) => commands.run(clock), { limits: { queryOutputBytes: 1_000_000 } });
    commands.next('squeue', { endless: true });
    const unique = '01000000000000000000000001';
    const item = { jobId: JobId.parse(`job_${unique}`), token: Token.parse(unique), handle: null, sinceMs: 0 };
    const { jobs, queueOutage } = await world.slurm.observe([item]);
    expect(jobs.get(item.jobId)).toMatchObject({ kind: 'unanswered', queueAbsent: false });
    expect(queueOutage).toMatchObject({ kind: 'unreachable' });
    expect(commands.calls('sacct')).toEqual([]);
  });

  test('P31: jobs of others in the answer are left out on our side', async () => {
    const slurm = await running();
    const { world } = slurm;
    const submittedAtMs = world.clock.nowMs();
    const foreign = Array.from({ length: 500 }, (_, n) => ({
      id: String(5_000 + n),
      state: 'FAILED',
      submittedAtMs,
      name: 'train',
    }));
    slurm.meet.squeue = () => exited(queueText([...foreign, ...slurm.jobs]));
    await world.run(10 * MINUTE);
    expect(phaseOf(await world.job())).toBe('Running');
  });

  test('P58: a command that reads its input to the end does not wait', async () => {
    const commands = new FakeCommands();
    const world = new SlurmWorld((clock) => commands.run(clock), { limits: { queryTimeLimitMs: 30_000 } });
    commands.next('squeue', { 'read-input': true });
    commands.next('sbatch', { 'read-input': true, stdout: '7\n' });
    expect(await world.slurm.observe([watched])).toMatchObject({ outage: null });
    const profile = world.profiles.get('smoke');
    if (profile === undefined) throw new Error('the world has no profile');
    const { jobId, token } = watched;
    const reply = await world.slurm.submit({ jobId, token, profile, directory: `/runs/${jobId}`, session: null });
    expect(reply).toMatchObject({ kind: 'accepted' });
  });

  test('an answer counts though a child that it left keeps its pipes open', async () => {
    const commands = new FakeCommands();
    const world = new SlurmWorld((clock) => commands.run(clock), { limits: { queryTimeLimitMs: 30_000 } });
    commands.next('squeue', { 'keep-pipe': true });
    expect(await world.slurm.observe([watched])).toMatchObject({ outage: null });
  });

  test('P62: one question for all jobs, twice a minute at rest', async () => {
    const slurm = new ScriptedSlurm();
    const { world } = slurm;
    await world.offered(200);
    await world.untilAskedAgain('sbatch', 200);
    await world.run(6 * MINUTE);
    const before = world.slurm.callCounts();
    await world.run(10 * MINUTE);
    const after = world.slurm.callCounts();
    expect((after['squeue'] ?? 0) - (before['squeue'] ?? 0)).toBeLessThanOrEqual(21);
    expect((after['sacct'] ?? 0) - (before['sacct'] ?? 0)).toBe(0);
  });
});

const watched: WatchItem = {
  jobId: JobId.parse('job_01000000000000000000000001'),
  token: Token.parse('01000000000000000000000001'),
  handle: null,
  sinceMs: 0,
};
