import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { EXIT } from '../../src/cli/exit-codes.js';
import { exitCodeOf } from '../../src/cli/session-step.js';
import type { StepView } from '../../src/coordinator/session-api.js';
import type { TaskId } from '../../src/machines/vocabulary.js';
import { stepId } from '../support/ids.js';
import { eventually } from '../support/wait.js';
import { said } from './support/site.js';
import { ended, exited } from './support/scripted-worker.js';
import { installed, run } from './support/program.js';
import { SessionSite } from './support/session-site.js';

// On a machine that may be busy.
jest.setTimeout(60_000);

const ALL_BYTES = Uint8Array.from({ length: 256 }, (_, n) => n);

let site: SessionSite;
let id: TaskId;
beforeAll(async () => {
  site = await SessionSite.start();
  const { scripts } = site.worker;
  scripts.set('echo', async ({ request, write }) => {
    await write('stdout', `${request.argv.slice(1).join(' ')}\n`);
    await write('stderr', 'and more\n');
    return exited();
  });
  scripts.set('bytes', async ({ write }) => {
    await write('stdout', ALL_BYTES);
    return exited();
  });
  scripts.set('exit', async ({ request }) => exited(Number(request.argv[1])));
  scripts.set('die', async ({ request }) => ended('exited', { signal: request.argv[1] ?? '' }));
  scripts.set('much', async ({ write }) => {
    await write('stdout', 'first');
    return { ...exited(), droppedBytes: 1234 };
  });
  scripts.set('ends', async ({ request }) =>
    ended(request.argv[1] as 'refused', { detail: request.argv[2] ?? '', exitCode: null }),
  );
  scripts.set('sleep', async ({ write, cancelled }) => {
    await write('stdout', 'asleep\n');
    await cancelled;
    return ended('cancelled');
  });
  scripts.set('cat', async ({ read, write }) => {
    for (let bytes = await read(); bytes !== null; bytes = await read()) await write('stdout', bytes);
    return exited();
  });
  id = await site.session();
});
afterAll(() => site.close());

const exec = (...argv: string[]) => site.as('alice', ['exec', id, '--', ...argv]);

describe('session start, list, status, stop', () => {
  test('start prints the id alone; --wait says what is missing, and returns when it is ready', async () => {
    const readiness = { allocation: true, workspace: true, ranks: false, agent: false };
    site.worker.view = { state: 'Starting', readiness, words: '1 of 2 ranks; waiting for rank 1' };
    const starting = site.begin('alice', ['start', '--profile', 'desk', '--wait', '--key', 'mine']);
    await said(starting, /1 of 2 ranks; waiting for rank 1/);
    site.worker.view = {};
    const { code, stdout, stderr } = await starting.ended;
    expect(code).toBe(EXIT.ok);
    expect(stdout).toMatch(/^task_\w{26}\n$/);
    expect(stderr).toMatch(/ready\n$/);
    const again = await site.as('alice', ['start', '--profile', 'desk', '--key', 'mine']);
    expect([again.stdout, again.stderr]).toEqual([stdout, expect.stringContaining('had been started before')]);
  });

  test('--wait-limit gives up the waiting, not the session; Ctrl-C as well; both say how to go on', async () => {
    site.worker.view = { state: 'Starting', words: '0 of 2 ranks; waiting for ranks 0 and 1' };
    const limited = await site.as('alice', ['start', '--profile', 'desk', '--wait', '--wait-limit', '0.2']);
    expect(limited.code).toBe(EXIT.failed);
    expect(limited.stderr).toMatch(/not ready after 0.2 s: .*\nhint: it goes on: open-compute session status task_/);
    const waiting = site.begin('alice', ['start', '--profile', 'desk', '--wait']);
    await said(waiting, /ranks/);
    waiting.interrupt();
    expect(await waiting.ended).toMatchObject({
      code: EXIT.interrupted,
      stderr: expect.stringContaining('it goes on'),
    });
    site.worker.view = {};
  });

  test('--wait ends with code 6 when the session ends before it is ready', async () => {
    site.worker.view = { state: 'Starting', words: 'waiting for nodes' };
    const waiting = site.begin('alice', ['start', '--profile', 'desk', '--wait', '--json']);
    await said(waiting, /waiting for nodes/);
    const { sessions } = JSON.parse((await site.as('alice', ['list', '--json', '--limit', '1'])).stdout) as {
      sessions: { task: { taskId: TaskId } }[];
    };
    const newest = sessions[0]?.task.taskId ?? '';
    const stopped = await site.as('alice', ['stop', newest, '--wait']);
    expect(stopped.stdout).toBe(`${newest} has ended: Cancelled, SESSION_IDLE_TIMEOUT\n`);
    // What had been before is no news.
    expect(stopped.stderr).toMatch(/^task_\w+ {2}asked to end .*\ntask_\w+ {2}Cancelled.*\n$/);
    const { code, stdout, stderr } = await waiting.ended;
    expect(code).toBe(EXIT.noResult);
    expect(JSON.parse(stdout)).toMatchObject({ taskId: newest, task: { phase: 'Cancelled' } });
    expect(stderr).toContain('ended before it was ready');
    site.worker.view = {};
  });

  test('a profile that serves no sessions is refused, with what there is', async () => {
    const { code, stderr } = await site.as('alice', ['start', '--profile', 'nothing']);
    expect([code, stderr]).toEqual([EXIT.usage, expect.stringContaining('known profiles: desk')]);
  });

  test('status says what is held, what is missing and until when, its ranks and its steps', async () => {
    const now = Date.now();
    const step: StepView = {
      ...{ stepId: stepId(), mode: 'exec', rank: 2, argv: ['sleep', '\u001b[31m'], by: 'alice' },
      ...{ requestedAtMs: now, end: null, endedAtMs: null },
    };
    const shown = await site.session({
      readiness: { allocation: true, workspace: true, ranks: false, agent: true },
      words: '3 of 4 ranks; waiting for rank 2',
      ranks: 4,
      ranksIn: [0, 1, 3].map((rank) => ({ rank, node: `n${rank}` })),
      grantedAtMs: now,
      idleEndsAtMs: now + 3_600_000,
      lifetimeEndsAtMs: now + 86_400_000,
      recoveries: 1,
      lastLoss: 'NODE_FAILED: n7 is down',
      steps: [step, { ...step, stepId: stepId(2), end: exited(3), endedAtMs: now + 5000 }],
    });
    const { stdout } = await site.as('viewer', ['status', shown]);
    for (const line of [
      /^missing +ranks$/m,
      /^allocation +held since 20/m,
      /^workspace +is there$/m,
      /^ranks +3 of 4; waiting for rank 2$/m,
      /^agent +answers$/m,
      /^idle end +in \S+ \(20.*\), unless somebody uses it before$/m,
      /^last end +in \S+ \(20.*\), whatever happens$/m,
      /^recoveries +came back as a new job 1 time \(NODE_FAILED: n7 is down\); what its processes had in memory is gone$/m,
      /^3 +n3$/m,
      /^step_\w+ +exec on rank 2 +running +- +alice +\S+ +sleep \\x1b\[31m$/m,
      /^step_\w+ +exec on rank 2 +exited +3 +alice +5s /m,
    ])
      expect(stdout).toMatch(line);
    const list = await site.as('viewer', ['list']);
    expect(list.stdout).toMatch(/^SESSION +PROFILE +STATE +REASON +RANKS +STEPS +WORKER +AGE +DETAIL\n/);
    expect(list.stdout).toMatch(new RegExp(`^${shown} +desk +Ready +- +3/4 +1 +gateway +\\S+ +3 of 4 ranks`, 'm'));
    site.worker.view = {};
  });

  test('a session that is over: not in list, in list --all, and its status says how it ended', async () => {
    const over = await site.session();
    await site.worker.end(over, 'cancelled');
    expect((await site.as('alice', ['list'])).stdout).not.toContain(over);
    expect((await site.as('alice', ['list', '--all'])).stdout).toMatch(
      new RegExp(`^${over} +desk +Ended +SESSION_IDLE_TIMEOUT `, 'm'),
    );
    const { stdout } = await site.as('alice', ['status', over]);
    expect(stdout).toMatch(/^now +ended: Cancelled, SESSION_IDLE_TIMEOUT$/m);
    expect((await site.as('alice', ['stop', over])).stdout).toBe(
      `${over} has ended: Cancelled, SESSION_IDLE_TIMEOUT\n`,
    );
    const refused = await site.as('alice', ['run', over, '--', 'echo']);
    expect([refused.code, refused.stdout]).toEqual([EXIT.failed, '']);
    expect(refused.stderr).toContain(
      'has ended: Cancelled(SESSION_IDLE_TIMEOUT); a step runs only inside an allocation that the session holds',
    );
  });

  test("another's session is not there, and a task of another kind is no session", async () => {
    for (const words of [
      ['status', id],
      ['stop', id],
      ['run', id, '--', 'echo'],
    ])
      expect([words[0], (await site.as('bob', words)).code]).toEqual([words[0], EXIT.notFound]);
    expect((await site.as('viewer', ['exec', id, '--', 'echo'])).code).toBe(EXIT.unauthorized);
    const bad = await site.as('alice', ['status', 'task_1']);
    expect([bad.code, bad.stderr]).toEqual([EXIT.usage, expect.stringContaining('session list shows it')]);
  });
});

describe('session run and exec', () => {
  test("the command's words arrive as they are, its output comes out as it is, stream by stream", async () => {
    const words = ['run', id, '--nodes', '2', '--tasks', '4', '--', 'echo', '--json', '-n', '$(id)', 'a b', '--'];
    const { code, stdout, stderr } = await site.as('alice', words);
    expect([code, stdout, stderr]).toEqual([EXIT.ok, '--json -n $(id) a b --\n', 'and more\n']);
    expect(site.worker.calls.at(-1)).toMatchObject({
      type: 'step',
      by: 'alice',
      request: { mode: 'run', nodes: 2, tasks: 4, cpusPerTask: null, timeLimitS: null },
    });
    await site.as('alice', ['exec', id, '--rank', '1', '--time-limit', '1.5', '--output-limit', '9', '--', 'echo']);
    expect(site.worker.calls.at(-1)).toMatchObject({
      request: { mode: 'exec', rank: 1, stdin: false, timeLimitS: 1.5, outputLimitBytes: 9 },
    });
  });

  test('words that are not UTF-8 are refused before anything is asked for', async () => {
    const asked = site.worker.calls.length;
    const { code, stderr } = await exec('echo', Buffer.from([0x61, 0xff]).toString());
    expect([code, stderr]).toEqual([EXIT.usage, expect.stringContaining('is not UTF-8')]);
    expect(site.worker.calls).toHaveLength(asked);
  });

  test('every byte, also to a terminal', async () => {
    const { bytes } = await site.as('alice', ['exec', id, '--', 'bytes'], { isTerminal: true });
    expect(bytes).toEqual(Buffer.from(ALL_BYTES));
  });

  test.each([
    [['exit', '0'], 0, ''],
    [['exit', '7'], 7, ''],
    [['die', 'SIGKILL'], 137, 'open-compute: the command was ended by SIGKILL\n'],
    [['die', '15'], 143, 'open-compute: the command was ended by signal 15\n'],
    [['ends', 'timeLimit'], 124, 'open-compute: the command was ended at its time limit\n'],
    [['nothing'], 127, ''],
  ])('%j ends with %d', async (argv, code, stderr) => {
    expect(await exec(...argv)).toMatchObject({ code, stderr });
  });

  test.each([
    ['refused', EXIT.failed, 'the step was refused, and nothing was started: no such rank'],
    ['unknown', EXIT.noResult, 'nobody can say: no such rank\nhint: the command may have run'],
    ['cancelled', EXIT.noResult, 'was cancelled: no such rank'],
  ])('%s is an error of our own', async (how, code, words) => {
    const { stderr, ...end } = await exec('ends', how, 'no such rank');
    expect(end.code).toBe(code);
    expect(stderr).toContain(words);
  });

  test('what was dropped is said', async () => {
    expect(await exec('much')).toMatchObject({
      code: EXIT.ok,
      stdout: 'first',
      stderr:
        'open-compute: 1234 bytes of output beyond the output limit of 16777216 bytes were dropped (--output-limit)\n',
    });
  });

  test('--json: one object at the end, the output as text, the same exit code', async () => {
    const { code, stdout } = await site.as('alice', ['exec', id, '--json', '--', 'echo', 'ä']);
    expect(code).toBe(EXIT.ok);
    expect(JSON.parse(stdout)).toMatchObject({
      ...{ stepId: expect.stringMatching(/^step_/), taskId: id, end: exited() },
      ...{ stdout: 'ä\n', stderr: 'and more\n', cutBytes: 0 },
    });
    expect((await site.as('alice', ['exec', id, '--json', '--', 'exit', '3'])).code).toBe(3);
    const refused = await site.as('alice', ['exec', id, '--json', '--', 'ends', 'refused', 'why']);
    expect(JSON.parse(refused.stderr)).toMatchObject({ error: { exitCode: EXIT.failed } });
  });

  test('-i forwards standard input, byte for byte, to its end', async () => {
    const { bytes, code } = await site.as('alice', ['exec', id, '-i', '--', 'cat'], { stdin: ALL_BYTES });
    expect([code, bytes]).toEqual([EXIT.ok, Buffer.from(ALL_BYTES)]);
  });

  test('large standard input goes in pieces; a command that ends first is not waited for', async () => {
    const large = Buffer.alloc(3 * 1024 * 1024, 'abc');
    const { bytes, code } = await site.as('alice', ['exec', id, '-i', '--', 'cat'], { stdin: large });
    expect([code, bytes.equals(large)]).toEqual([EXIT.ok, true]);
    const endless = (async function* () {
      yield Buffer.from('x');
      await new Promise(() => undefined);
    })();
    expect((await site.as('alice', ['exec', id, '-i', '--', 'exit', '4'], { stdin: endless })).code).toBe(4);
  });

  test('Ctrl-C asks the command to end, says so, and waits for its end', async () => {
    const running = site.begin('alice', ['exec', id, '--', 'sleep']);
    await eventually(() => (running.stdout() === 'asleep\n' ? true : null));
    running.interrupt();
    const { code, stderr } = await running.ended;
    expect(code).toBe(EXIT.interrupted);
    expect(stderr).toMatch(
      /^open-compute: asking the command to end, and waiting.*\nopen-compute: step_\w+ was cancelled/,
    );
    expect(site.worker.calls.at(-1)).toMatchObject({ type: 'cancel', by: 'alice' });
  });

  test('cancel-step ends one step, and not the session', async () => {
    const running = site.begin('alice', ['run', id, '--', 'sleep']);
    await eventually(() => (running.stdout() === '' ? null : true));
    const call = site.worker.calls.at(-1);
    const step = call?.type === 'step' ? call.request.stepId : '';
    expect((await site.as('alice', ['cancel-step', id, step])).stdout).toBe(
      `${step} is asked to end; the session stays\n`,
    );
    expect((await running.ended).code).toBe(EXIT.noResult);
    expect((await site.as('alice', ['cancel-step', id, step])).stdout).toBe(`${step} has ended already\n`);
    expect((await site.as('alice', ['cancel-step', id, 'step_1'])).code).toBe(EXIT.usage);
    expect((await exec('exit', '0')).code).toBe(EXIT.ok);
  });

  test.each([
    [['run', 'SESSION'], 'command'],
    [['run', 'SESSION', '--nodes', '0', '--', 'x'], 'from 1 to 65536'],
    [['run', 'SESSION', '--rank', '1', '--', 'x'], '--rank'],
    [['exec', 'SESSION', '--rank', '-1', '--', 'x'], 'from 0'],
    [['exec', 'SESSION', '--', ''], 'a command has a name'],
    [['exec', 'SESSION', '--', 'LONG'], 'a command has at most 98304 bytes'],
    [['exec', 'nonsense', '--', 'x'], 'is no session'],
    [['start', '--profile', 'a b'], 'is not a name'],
    [['start', '--profile', 'desk', '--wait-limit', '5'], '--wait-limit is for --wait'],
  ])('%j is refused before anything is sent', async (words, message) => {
    const before = site.worker.calls.length;
    const { code, stderr } = await site.as(
      'alice',
      words.map((word) => word.replace('SESSION', id).replace('LONG', 'x'.repeat(100_000))),
    );
    expect([code, stderr]).toEqual([EXIT.usage, expect.stringContaining(message)]);
    expect(site.worker.calls).toHaveLength(before);
  });
});

test.each([
  [{ exitCode: 3, signal: null }, 3],
  [{ exitCode: 256, signal: null }, 0],
  [{ exitCode: null, signal: 'SIGTERM' }, 143],
  [{ exitCode: null, signal: '9' }, 137],
  [{ exitCode: null, signal: 'SIGNONSENSE' }, 1],
  [{ exitCode: null, signal: null }, 1],
])('%j is exit code %d', (end, code) => {
  expect(exitCodeOf(end)).toBe(code);
});

describe('the program itself', () => {
  test('a command that ends before its input does is not waited for; a second Ctrl-C stops the waiting', async () => {
    const main = await installed();
    const options = { cwd: site.home, env: { OPEN_COMPUTE_CREDENTIALS: site.file('alice') } };
    const program = (...words: string[]) => run(process.execPath, [main, 'session', 'exec', id, ...words], options);
    // Its input stays open.
    expect(await program('-i', '--', 'exit', '4').ended).toEqual({ code: 4, signal: null });
    site.worker.scripts.set('stubborn', async ({ write }) => {
      await write('stdout', 'up\n');
      return new Promise(() => undefined);
    });
    const stubborn = program('-i', '--', 'stubborn');
    await eventually(() => (stubborn.stdout() === 'up\n' ? true : null));
    stubborn.process.kill('SIGINT');
    await eventually(() => (stubborn.stderr().includes('asking the command to end') ? true : null));
    stubborn.process.kill('SIGINT');
    expect(await stubborn.ended).toEqual({ code: 130, signal: null });
  });
});

describe('when the coordinator restarts in the middle of a step', () => {
  const restart = async (running: ReturnType<SessionSite['begin']>) => {
    await eventually(() => (running.stdout() === 'before\n' ? true : null));
    await site.stopCoordinator();
    await said(running, /does not answer/);
    await site.startCoordinator();
  };
  let goOn: () => void;
  const gate = () => new Promise<void>((resolve) => (goOn = resolve));

  test('its output goes on where it was, each byte once, and the command is not started again', async () => {
    const waiting = gate();
    let starts = 0;
    site.worker.scripts.set('long', async ({ write }) => {
      starts += 1;
      await write('stdout', 'before\n');
      await waiting;
      await write('stdout', 'after\n');
      return exited(5);
    });
    const running = site.begin('alice', ['exec', id, '--', 'long']);
    await restart(running);
    goOn();
    const { code, stdout, stderr } = await running.ended;
    expect([code, stdout, starts]).toEqual([5, 'before\nafter\n', 1]);
    expect(stderr).toMatch(/does not answer \(.*\n.*answers again\n$/);
  });

  test('a gap is said', async () => {
    const waiting = gate();
    site.worker.scripts.set('gap', async ({ write, lose }) => {
      await write('stdout', 'before\n');
      await waiting;
      lose('stdout', 42);
      await write('stdout', 'after\n');
      return exited();
    });
    const running = site.begin('alice', ['exec', id, '--', 'gap']);
    await restart(running);
    goOn();
    const { stdout, stderr } = await running.ended;
    expect(stdout).toBe('before\nafter\n');
    expect(stderr).toContain('42 bytes of stdout are missing here: the coordinator restarted');
  });

  test('a session that is over by then: nobody can say what became of the step', async () => {
    const own = await site.session();
    site.worker.scripts.set('lost', async ({ write, cancelled }) => {
      await write('stdout', 'before\n');
      await cancelled;
      return exited();
    });
    const running = site.begin('alice', ['exec', own, '--', 'lost']);
    await eventually(() => (running.stdout() === 'before\n' ? true : null));
    await site.worker.end(own, 'lost');
    const { code, stderr } = await running.ended;
    expect([code, stderr]).toEqual([EXIT.noResult, expect.stringContaining('nobody can say')]);
  });
});
