import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { EXIT } from '../../src/cli/exit-codes.js';
import { taskId } from '../support/ids.js';
import { eventually } from '../support/wait.js';
import { jsonLines, start, type Running } from './support/cli.js';
import { createSite, put, said, type Site } from './support/site.js';

// Jobs are real processes: on a busy machine each takes its time.
jest.setTimeout(60_000);

let site: Site;
let worker: Running;

beforeAll(async () => {
  site = await createSite();
  worker = await site.worker('gateway', '--status-every', '1');
});

afterAll(async () => {
  expect(await site.close()).toEqual([EXIT.ok, EXIT.ok]);
});

const training = (parameters: object): string =>
  JSON.stringify({ profile: 'smoke', parameters: { message: 'hello', ...parameters } });
const submit = (parameters: object, ...more: string[]): string[] => [
  ...['submit', '--kind', 'training', '--payload', training(parameters)],
  ...more,
];
const submitted = async (parameters: object): Promise<string> => {
  const { code, stdout } = await site.as('submitter', submit(parameters));
  expect(code).toBe(EXIT.ok);
  return stdout.trimEnd();
};

describe('the main job, by commands alone', () => {
  test('submit prints the task id alone; result --wait prints the result', async () => {
    const task = await submitted({ message: 'hello' });
    expect(task).toMatch(/^task_[0-9a-z]{26}$/);
    const { code, stdout, stderr } = await site.as('submitter', ['result', task, '--wait']);
    expect(code).toBe(EXIT.ok);
    expect(JSON.parse(stdout)).toMatchObject({ message: 'hello' });
    expect(stdout.trimEnd().split('\n')).toHaveLength(1);
    expect(stderr).toContain(`${task}  Completed`);
    const again = await site.as('submitter', ['result', task, '--json']);
    expect(JSON.parse(again.stdout)).toMatchObject({
      taskId: task,
      phase: 'Completed',
      reason: null,
      result: { message: 'hello' },
    });
  });

  test('submit --wait: progress on stderr, the result alone on stdout', async () => {
    const { code, stdout, stderr } = await site.as('submitter', submit({ message: 'wait' }, '--wait'));
    expect(code).toBe(EXIT.ok);
    expect(JSON.parse(stdout)).toMatchObject({ message: 'wait' });
    expect(stderr).toMatch(/^task_\w+\n/);
    for (const where of ['Queued', 'Leased', 'Completed']) expect(stderr).toContain(where);
  });

  test('a payload from a file and from standard input', async () => {
    const fromStdin = await site.as('submitter', ['submit', '--kind', 'training', '--payload', '-', '--wait'], {
      stdin: training({ message: 'stdin' }),
    });
    expect(JSON.parse(fromStdin.stdout)).toMatchObject({ message: 'stdin' });
  });

  test('the same --key is the same task; without one each submission is a task of its own', async () => {
    const [one, two] = [
      await site.as('submitter', submit({}, '--key', 'k1')),
      await site.as('submitter', submit({}, '--key', 'k1')),
    ];
    expect(one.stdout).toBe(two.stdout);
    expect(two.stderr).toContain('had been submitted before');
    expect(await submitted({})).not.toBe(await submitted({}));
    const other = await site.as('submitter', submit({ message: 'other' }, '--key', 'k1'));
    expect(other.code).toBe(EXIT.usage);
  });

  test('a task that ends without a result: code 6, phase and reason, its output, nothing on stdout', async () => {
    const { code, stdout, stderr } = await site.as('submitter', submit({ exit: 3 }, '--wait'));
    expect([code, stdout]).toEqual([EXIT.noResult, '']);
    expect(stderr).toMatch(/ended without a result: Failed, EXIT_NONZERO/);
    const task = /task_\w+/.exec(stderr)?.[0] ?? '';
    expect((await site.as('submitter', ['result', task])).code).toBe(EXIT.noResult);
    expect((await site.as('submitter', ['watch', task])).code).toBe(EXIT.noResult);
    const json = await site.as('submitter', ['result', task, '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({ phase: 'Failed', reason: 'EXIT_NONZERO', result: null });
    expect(JSON.parse(json.stderr)).toMatchObject({ error: { exitCode: EXIT.noResult } });
    const logs = await site.as('submitter', ['logs', task]);
    expect(logs.code).toBe(EXIT.ok);
    expect(`${logs.stdout}${logs.stderr}`).toContain('as of');
  });

  test('cancel is a wish; the task ends as Cancelled when its job has ended', async () => {
    const task = await submitted({ sleep: 300 });
    const watching = start(['watch', task, '--json'], site.options('submitter'));
    await eventually(() => (watching.stdout().includes('"phase":"Running"') ? true : null));
    expect((await site.as('submitter', ['result', task])).code).toBe(EXIT.failed);
    const { code, stdout } = await site.as('submitter', ['cancel', task]);
    expect([code, stdout]).toEqual([EXIT.ok, `${task} is asked to end; it is Leased until its job has ended\n`]);
    const { code: watched, stdout: changes } = await watching.ended;
    expect(watched).toBe(EXIT.noResult);
    expect(jsonLines(changes).at(-1)).toMatchObject({ phase: 'Cancelled', reason: 'USER_CANCELLED' });
    expect((await site.as('submitter', ['cancel', task])).stdout).toBe(`${task} is Cancelled\n`);
  });

  test('status has phase and reason in two columns; of one task its jobs and its history', async () => {
    const { stdout } = await site.as('submitter', ['status']);
    expect(stdout).toMatch(/^TASK +WHAT +PHASE +REASON +JOB +WORKER +AGE +DETAIL\n/);
    expect(stdout).toMatch(/^task_\w+ +training\/smoke +Failed +EXIT_NONZERO +Failed +worker /m);
    expect(stdout).toMatch(/^task_\w+ +training\/smoke +Completed +- +Completed +worker /m);
    const { tasks } = JSON.parse((await site.as('viewer', ['status', '--json', '--limit', '2'])).stdout) as {
      tasks: { taskId: string }[];
    };
    expect(tasks).toHaveLength(2);
    const failed = await site.as('submitter', ['status', '--phase', 'Failed', '--json']);
    const [task] = (JSON.parse(failed.stdout) as { tasks: { taskId: string }[] }).tasks;
    const one = await site.as('submitter', ['status', task?.taskId ?? '']);
    expect(one.stdout).toMatch(/^reason +EXIT_NONZERO$/m);
    expect(one.stdout).toMatch(/^JOB +EPOCH/m);
    expect(one.stdout).toMatch(/task\.submitted +Queued/);
    expect(one.stdout).toMatch(/task\.failed +Failed +EXIT_NONZERO/);
  });

  test('profiles shows what is offered and nothing about where it runs', async () => {
    const { stdout } = await site.as('submitter', ['profiles']);
    expect(stdout).toMatch(/^smoke +training +1 /m);
    const json = (await site.as('submitter', ['profiles', '--json'])).stdout;
    expect(JSON.parse(json)).toMatchObject({ kinds: ['training'], profiles: [{ name: 'smoke', workers: 1 }] });
    expect(json).not.toContain('examples');
  });

  test('explain finds the job in the state directory of its worker', async () => {
    const { task } = JSON.parse(
      (
        await site.as('submitter', [
          'status',
          await submitted({}).then(async (id) => (await site.as('submitter', ['result', id, '--wait']), id)),
          '--json',
        ])
      ).stdout,
    ) as { task: { jobs: { jobId: string }[] } };
    const { code, stdout } = await site.as('submitter', ['explain', task.jobs[0]?.jobId ?? '']);
    expect(code).toBe(EXIT.ok);
    expect(stdout).toContain('the coordinator took the outcome');
  });

  test('watch without a task tells all changes from now on, until Ctrl-C', async () => {
    const watching = start(['watch'], site.options('viewer'));
    let task = '';
    await eventually(async () => {
      task = await submitted({});
      return eventually(() => (watching.stdout().includes(task) ? true : null), 500).catch(() => null);
    });
    await eventually(() => (new RegExp(`${task} Completed`).test(watching.stdout()) ? true : null));
    watching.interrupt();
    expect((await watching.ended).code).toBe(EXIT.ok);
  });

  test('Ctrl-C ends the waiting and says that the task goes on', async () => {
    const waiting = start(submit({ sleep: 2 }, '--wait'), site.options('submitter'));
    await said(waiting, /(Leased)/);
    waiting.interrupt();
    const { code, stdout, stderr } = await waiting.ended;
    expect([code, stdout]).toEqual([EXIT.interrupted, '']);
    expect(stderr).toMatch(/hint: it goes on: open-compute result task_\w+ --wait\n$/);
  });

  test('the worker says how many jobs there are, and how many calls were made for them', async () => {
    const status = await eventually(() => /\{[^\n]*"message":"status"\}/.exec(worker.stderr())?.[0] ?? null);
    expect(JSON.parse(status)).toMatchObject({
      inSeconds: 1,
      jobs: { total: expect.any(Number) },
      calls: { start: expect.any(Number) },
    });
  });
});

describe('a payload that can not be is refused before anything is sent', () => {
  const count = async (): Promise<number> =>
    (JSON.parse((await site.as('viewer', ['status', '--json', '--limit', '1000'])).stdout) as { tasks: unknown[] })
      .tasks.length;

  test.each([
    ['not JSON', '{"profile":', 'the payload is not JSON'],
    ['empty', '', 'the payload is empty'],
    ['not an object', '[1]', 'a payload of kind training is an object'],
    ['without a profile', '{"parameters":{}}', 'names a profile'],
    ['with a profile that is no text', '{"profile":7}', 'names its profile in a string'],
    ['with another key', '{"profile":"smoke","script":"/bin/sh"}', 'has no "script"'],
    ['with parameters that are no object', '{"profile":"smoke","parameters":[1]}', 'has its parameters in an object'],
    ['with a command for a profile', '{"profile":"gpu; rm -rf /"}', 'profile "gpu; rm -rf /" is not a name'],
    ['with a substitution for a profile', '{"profile":"$(reboot)"}', 'profile "$(reboot)" is not a name'],
    ['with a newline in its profile', '{"profile":"a\\nb"}', 'profile "a\\\\x0ab" is not a name'],
    ['with a NUL in its profile', '{"profile":"a\\u0000b"}', 'profile "a\\\\x00b" is not a name'],
    ['with 10 kB for a profile', JSON.stringify({ profile: 'x'.repeat(10_000) }), 'is not a name'],
    [
      'too large',
      JSON.stringify({ profile: 'smoke', parameters: { x: 'y'.repeat(256 * 1024) } }),
      'larger than the 262144 bytes',
    ],
    ['not UTF-8 any more', '{"profile":"smoke","parameters":{"m":"\ufffd"}}', 'the payload is not UTF-8'],
    ['in a file that is not there', '@missing.json', 'payload file "missing.json" does not exist'],
    ['in a directory', '@.', 'payload file "." is a directory'],
    ['in no file', '@', '--payload @ names no file'],
  ])('%s', async (_, payload, message) => {
    const before = await count();
    const { code, stdout, stderr } = await site.as('submitter', ['submit', '--kind', 'training', '--payload', payload]);
    expect([code, stdout]).toEqual([EXIT.usage, '']);
    expect(stderr).toContain(message);
    expect(stderr.length).toBeLessThan(1000);
    expect(await count()).toBe(before);
  });

  test('not UTF-8, in a file and on standard input', async () => {
    const bytes = Buffer.concat([
      Buffer.from('{"profile":"smoke","parameters":{"m":"'),
      Buffer.from([0xff, 0xfe]),
      Buffer.from('"}}'),
    ]);
    const { code, stderr } = await site.as('submitter', ['submit', '--kind', 'training', '--payload', '-'], {
      stdin: bytes,
    });
    expect([code, stderr]).toEqual([EXIT.usage, 'open-compute: standard input is not UTF-8\n']);
  });

  test.each([
    ['unknown profile', 'training', '{"profile":"nosuch"}', EXIT.usage, 'nosuch'],
    ['nested too deeply', 'other', '['.repeat(200) + ']'.repeat(200), EXIT.usage, '100 levels'],
    ['hostile kind', 'x\ny', '{}', EXIT.usage, '--kind "x\\\\x0ay" is not a name'],
  ])('%s: the coordinator or the command says why', async (_, kind, payload, code, message) => {
    const ended = await site.as('submitter', ['submit', '--kind', kind, '--payload', payload]);
    expect([ended.code, ended.stdout]).toEqual([code, '']);
    expect(ended.stderr).toContain(message);
  });
});

describe('credentials', () => {
  test('a file has mode 0600, is not overwritten, and its secret is nowhere else', async () => {
    const out = join(site.home, 'fresh.json');
    const argv = ['credentials', 'create', '--role', 'viewer', '--name', 'fresh', '--out', out];
    const first = await site.as('admin', argv);
    expect(first.code).toBe(EXIT.ok);
    expect(statSync(out).mode & 0o777).toBe(0o600);
    const { secret, url } = JSON.parse(readFileSync(out, 'utf8')) as { secret: string; url: string };
    expect(url).toBe(site.url);
    expect(first.stdout + first.stderr + site.coordinator.stderr()).not.toContain(secret);

    const before = (await site.as('admin', ['credentials', 'list'])).stdout;
    const second = await site.as('admin', argv);
    expect(second.code).toBe(EXIT.usage);
    expect(second.stderr).toContain('exists already');
    expect((await site.as('admin', ['credentials', 'list'])).stdout).toBe(before);
    expect(before).toMatch(/^fresh-\w+ +fresh +viewer /m);
  });

  test('a revoked one is told so; revoking the last admin is refused', async () => {
    const out = join(site.home, 'gone.json');
    const made = await site.as('admin', [
      'credentials',
      'create',
      '--role',
      'submitter',
      '--name',
      'gone',
      '--out',
      out,
      '--json',
    ]);
    const { id } = JSON.parse(made.stdout) as { id: string };
    expect((await site.as('admin', ['credentials', 'revoke', id])).stdout).toBe(`${id} is revoked\n`);
    const refused = await site.as('submitter', ['status', '--credentials', out]);
    expect(refused.code).toBe(EXIT.unauthorized);
    expect(refused.stderr).toContain('has been revoked');
    const { id: admin } = JSON.parse(readFileSync(site.file('admin'), 'utf8')) as { id: string };
    const last = await site.as('admin', ['credentials', 'revoke', admin]);
    expect([last.code, last.stderr]).toEqual([EXIT.failed, expect.stringContaining('the last admin')]);
  });

  test.each([
    ['none', ['status'], { OPEN_COMPUTE_CREDENTIALS: '' }, EXIT.unauthorized, 'no credentials file was named'],
    [
      'a file that is not there',
      ['status', '--credentials', '/nonexistent.json'],
      {},
      EXIT.unauthorized,
      '/nonexistent.json does not exist',
    ],
    ['not allowed to', ['credentials', 'list'], {}, EXIT.unauthorized, 'role submitter may not do this'],
    ['a task of nobody', ['status', taskId(7)], {}, EXIT.notFound, `no task ${taskId(7)}`],
    ['text that is no task id', ['cancel', 'task_1; ls'], {}, EXIT.usage, '"task_1; ls" is no task id'],
    ['an id of nobody', ['credentials', 'revoke', 'x\ty'], {}, EXIT.usage, 'is no credential id'],
  ])('%s', async (_, argv, env, code, message) => {
    const ended = await site.as('submitter', argv, { env });
    expect([ended.code, ended.stdout]).toEqual([code, '']);
    expect(ended.stderr).toContain(message);
  });

  test('wrong, readable by others, of another shape: each says what it is, and none is quoted', async () => {
    const good = JSON.parse(readFileSync(site.file('submitter'), 'utf8')) as object;
    const cases = [
      [put(site, 'wrong.json', JSON.stringify({ ...good, secret: 'SECRET-1' }), 0o600), 'this needs a credential'],
      [put(site, 'open.json', JSON.stringify({ ...good, secret: 'SECRET-2' }), 0o644), 'others can read it'],
      [
        put(site, 'shape.json', JSON.stringify({ ...good, secret: 7, extra: 'SECRET-3' }), 0o600),
        'is not a credentials file',
      ],
      [put(site, 'text.json', 'SECRET-4', 0o600), 'is not JSON'],
    ] as const;
    for (const [file, message] of cases) {
      const { code, stderr } = await site.as('submitter', ['status', '--credentials', file]);
      expect([code, stderr]).toEqual([EXIT.unauthorized, expect.stringContaining(message)]);
      expect(stderr).not.toContain('SECRET');
    }
  });
});

test('doctor looks at everything that it is told about, and changes nothing', async () => {
  const argv = ['doctor', '--backend', 'local', '--name', 'gateway'];
  const { code, stdout } = await site.as('submitter', [...argv, '--json']);
  expect(code).toBe(EXIT.ok);
  const { findings } = JSON.parse(stdout) as { findings: { check: string; status: string }[] };
  expect(findings.map(({ check }) => check)).toEqual([
    ...['node', 'state directory', 'runs directory', 'profiles', 'backend local', 'credentials', 'coordinator'],
  ]);
  expect(findings.filter(({ status }) => status === 'failed')).toEqual([]);
  const other = await site.as('submitter', [
    'doctor',
    '--backend',
    'local',
    '--name',
    'nobody',
    '--training-profile',
    'a=/nonexistent',
  ]);
  expect(other.code).toBe(EXIT.failed);
  expect(other.stdout).toMatch(/^profiles +failed +profile a: script \/nonexistent is missing/m);
  expect(existsSync(join(site.home, '.local/state/open-compute/worker-nobody'))).toBe(false);
  expect(readdirSync(join(site.home, 'empty'))).toEqual([]);
});
