import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { lstatSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CredentialsFile } from '../../src/coordinator/credentials-file.js';
import { SMOKE_SCRIPT } from '../../src/cli/compose.js';
import { LeaseGrant } from '../../src/coordinator/worker-api.js';
import { JobId, SafeName, TaskId, Token } from '../../src/machines/vocabulary.js';
import { cli, start, type Ended, type Running } from '../cli/support/cli.js';
import { createSite, put, said, type Site } from '../cli/support/site.js';
import { grant } from '../support/fake-coordinator.js';

// On a machine that may be busy.
jest.setTimeout(60_000);

/** In the worker's and the coordinator's environment, under names that secrets go by. */
const MARKER = 'marker-5f1c0e7d-of-the-environment';
const SECRET_NAMES = ['AWS_SECRET_ACCESS_KEY', 'WANDB_API_KEY', 'DATABASE_PASSWORD', 'GITHUB_TOKEN', 'PLAIN_NAME'];
const PLANTED = Object.fromEntries(SECRET_NAMES.map((name) => [name, MARKER]));

/** Shows all that a job can see of its surroundings. */
const SPY = `#!/bin/sh
env >&2
{ printf '"'; { env; cat /proc/self/environ /proc/[0-9]*/cmdline 2>/dev/null; } | base64 | tr -d '\\n'; printf '"\\n'; } >"$2.new"
mv "$2.new" "$2"
`;

let site: Site;
let worker: Running;
let seen = '';
let umask = 0;

/** Every file and directory below a path, not through links. */
function* tree(path: string): Generator<string> {
  yield path;
  if (!lstatSync(path).isDirectory()) return;
  for (const name of readdirSync(path)) yield* tree(join(path, name));
}

const modeOf = (path: string): number => lstatSync(path).mode & 0o777;

beforeAll(async () => {
  // Whatever the user's own mask allows.
  umask = process.umask(0);
  for (const [name, value] of Object.entries(PLANTED)) process.env[name] = value;
  site = await createSite();
  const spy = put(site, 'spy.sh', SPY, 0o755);
  // Its whole environment, as a service would have it.
  worker = start(
    [
      ...['worker', '--backend', 'local', '--name', 'w', '--keep-directories', '1'],
      ...['--training-profile', `spy=${spy}`, '--training-profile', `smoke=${SMOKE_SCRIPT}`],
    ],
    site.options('worker', { env: PLANTED }),
  );
  await said(worker, /(started; adopted)/);
  const submit = (profile: string, parameters: object): Promise<Ended> => {
    const payload = JSON.stringify({ profile, parameters });
    return site.as('submitter', ['submit', '--kind', 'training', '--payload', payload, '--wait']);
  };
  const spied = await submit('spy', {});
  if (spied.code !== 0) throw new Error(spied.stderr);
  seen = Buffer.from(z.string().parse(JSON.parse(spied.stdout)), 'base64').toString('latin1');
  // Its directory is kept, with everything in it.
  await submit('smoke', { message: 'x', exit: 3 });
}, 60_000);
afterAll(async () => {
  for (const name of SECRET_NAMES) Reflect.deleteProperty(process.env, name);
  process.umask(umask);
  worker.interrupt();
  await worker.ended;
  await site.close();
}, 30_000);

describe('what is written', () => {
  test("is its owner's alone, whatever the umask: state, credentials, runs, job directories, output", () => {
    const state = join(site.home, '.local/state/open-compute/worker-w');
    const roots = [join(site.home, 'coordinator'), state, ...['submitter', 'viewer', 'worker'].map(site.file)];
    const found = roots.flatMap((root) => [...tree(root)]);
    const open = found.filter((path) => (modeOf(path) & 0o077) !== 0 && !lstatSync(path).isSymbolicLink());
    expect(open.map((path) => `${path} ${modeOf(path).toString(8)}`)).toEqual([]);
    const names = found.map((path) => path.split('/').at(-1));
    expect(names).toEqual(
      expect.arrayContaining([
        ...['admin.json', 'credentials.json', 'events.db', 'output', 'writer.json', 'runs', '.wake'],
        ...['input.json', 'profile', 'run.sh', 'stdout', 'stderr', 'claim', 'done'],
      ]),
    );
    expect(modeOf(site.file('admin'))).toBe(0o600);
    expect(modeOf(join(site.home, 'coordinator'))).toBe(0o700);
  });

  test('a credentials file that everybody may read is refused before anything is sent', async () => {
    const copy = put(site, 'open.json', readFileSync(site.file('submitter')), 0o644);
    const refused = await cli(['status'], { env: { OPEN_COMPUTE_CREDENTIALS: copy } });
    expect([refused.code, refused.stderr]).toEqual([4, expect.stringContaining(`chmod 600 ${copy}`)]);
  });

  test('a new credential does not go through a link, not even one that points nowhere', async () => {
    const victim = put(site, 'victim', 'mine');
    for (const [name, target] of [
      ['link.json', victim],
      ['dangling.json', join(site.home, 'nowhere')],
    ] as const) {
      symlinkSync(target, join(site.home, name));
      const out = join(site.home, name);
      const refused = await site.as('admin', [
        'credentials',
        'create',
        '--role',
        'viewer',
        '--name',
        'x',
        '--out',
        out,
      ]);
      expect([name, refused.code]).toEqual([name, 2]);
    }
    expect(readFileSync(victim, 'utf8')).toBe('mine');
    expect(readdirSync(site.home)).not.toContain('nowhere');
  });

  test('the list of credentials is replaced, not written through a link that lies in its way', async () => {
    const victim = put(site, 'victim2', 'mine');
    const temporary = join(site.home, 'coordinator/credentials.json.new');
    symlinkSync(victim, temporary);
    const out = join(site.home, 'after-link.json');
    const made = await site.as('admin', ['credentials', 'create', '--role', 'viewer', '--name', 'y', '--out', out]);
    expect([made.code, made.stderr]).toEqual([0, expect.any(String)]);
    expect(readFileSync(victim, 'utf8')).toBe('mine');
    expect(lstatSync(join(site.home, 'coordinator/credentials.json')).isSymbolicLink()).toBe(false);
  });

  test('a state directory that others may write to is refused, and so is one that is a link to such a place', async () => {
    const shared = join(site.home, 'shared');
    mkdirSync(shared, { mode: 0o777 });
    writeFileSync(join(shared, 'of-others'), '');
    symlinkSync(shared, join(site.home, 'to-shared'));
    for (const path of [shared, join(site.home, 'to-shared')]) {
      const refused = await cli(['serve', '--state-dir', path, '--listen', '127.0.0.1:0']);
      expect([path, refused.code, refused.stderr]).toEqual([
        path,
        7,
        expect.stringContaining('others may write to it'),
      ]);
    }
  });
});

test('no name that comes from outside can climb out of a directory', () => {
  const hostile = ['', '.', '..', '../x', 'a/b', '/etc', 'a\0b', 'a\nb', '-rf', '%2e%2e', 'job_../../../../etc/passwd'];
  for (const text of hostile) {
    const ids = [JobId, TaskId, Token, SafeName].map((schema) => schema.safeParse(text).success);
    expect([text, ids]).toEqual([text, [false, false, false, false]]);
    const open = { jobId: text, token: '0'.repeat(26), epoch: 1, worker: 'w', site: 's' };
    for (const wrong of [
      { ...grant(), taskId: text },
      { ...grant(), openJobs: [open] },
    ])
      expect([text, LeaseGrant.safeParse(wrong).success]).toEqual([text, false]);
  }
});

describe('INV-9 a secret', () => {
  const roles = ['admin', 'submitter', 'viewer', 'worker'] as const;
  const secrets = (): readonly string[] =>
    roles.map((role) => CredentialsFile.parse(JSON.parse(readFileSync(site.file(role), 'utf8'))).secret);

  /** Which of the secrets a text has in it, also in base64. */
  const inside = (text: string): readonly string[] =>
    [MARKER, ...secrets()].filter((secret) => {
      const coded = Buffer.from(secret).toString('base64').slice(0, -4);
      return text.includes(secret) || text.includes(coded);
    });

  test('of the environment does not reach a job, whatever its name; of a credential neither', () => {
    expect(seen).toContain('OPEN_COMPUTE_JOB_ID=');
    expect(inside(seen)).toEqual([]);
    expect(seen).not.toContain('OPEN_COMPUTE_CREDENTIALS');
  });

  test("is in no file of the coordinator's or a worker's, beside the credentials files themselves", () => {
    const own = new Set(roles.map((role) => site.file(role)));
    const files = [...tree(site.home)].filter((path) => lstatSync(path).isFile() && !own.has(path));
    expect(files.length).toBeGreaterThan(10);
    // A copy that this test made itself.
    const guilty = files.filter(
      (path) => !path.endsWith('/open.json') && inside(readFileSync(path, 'latin1')).length > 0,
    );
    expect(guilty).toEqual([]);
  });

  test('is in no log line of a service, and in no export of a log', async () => {
    expect(worker.stderr()).toContain('leased');
    expect(inside(worker.stderr())).toEqual([]);
    expect(inside(site.coordinator.stderr() + site.coordinator.stdout())).toEqual([]);
    for (const dir of ['coordinator', '.local/state/open-compute/worker-w']) {
      const exported = await cli(['events', 'export', '--state-dir', join(site.home, dir)]);
      expect([exported.code, exported.stdout.includes('"stream"')]).toEqual([0, true]);
      expect(inside(exported.stdout)).toEqual([]);
    }
  });

  test('is in no answer of the coordinator, and in no error of a command', async () => {
    const { id, secret } = CredentialsFile.parse(JSON.parse(readFileSync(site.file('submitter'), 'utf8')));
    const told: string[] = [];
    const tell = async (...argv: readonly string[]): Promise<void> => {
      const { stdout, stderr } = await cli(argv, { env: { ...PLANTED, OPEN_COMPUTE_DEBUG: '1' } });
      told.push(stdout + stderr);
    };
    const file = (name: string, content: object | string, mode = 0o600): string =>
      put(site, name, typeof content === 'string' ? content : JSON.stringify(content), mode);
    const place = site.url;
    for (const [name, content] of [
      ['nobody-there.json', { url: 'http://127.0.0.1:1', id, secret }],
      ['wrong-id.json', { url: place, id: 'nobody', secret }],
      ['newline.json', { url: place, id: `${id}\nx: y`, secret }],
      ['extra.json', { url: place, id, secret, more: secret }],
      ['no-json.json', `{"url": "${place}", "id": "${id}", "secret": "${secret}"`],
      ['wrong-url.json', { url: `ftp://${secret}@x`, id, secret }],
    ] as const) {
      const path = file(name, content);
      await tell('status', '--credentials', path);
      await tell('status', '--json', '--credentials', path);
      await tell('worker', '--backend', 'local', '--name', 'v', '--credentials', path);
    }
    expect(told.every((text) => text.length > 0)).toBe(true);
    expect(told.filter((text) => inside(text).length > 0)).toEqual([]);
    for (const argv of [['status'], ['profiles'], ['credentials', 'list'], ['status', '--json']]) {
      const { stdout, stderr } = await site.as('admin', argv);
      expect([argv, inside(stdout + stderr)]).toEqual([argv, []]);
    }
  });
});

describe('serve', () => {
  const listening = async (name: string, ...listen: readonly string[]): Promise<string> => {
    const running = start(['serve', '--state-dir', join(site.home, name), ...listen]);
    await said(running, /(listening)/);
    running.interrupt();
    return (await running.ended).stderr;
  };

  test('says loudly that secrets travel in the clear when it can be reached from elsewhere', async () => {
    for (const [name, listen] of [
      ['c4', '0.0.0.0:0'],
      ['c6', '[::]:0'],
    ] as const) {
      const log = await listening(name, '--listen', listen);
      expect([listen, /"level":"warn".*without TLS/.test(log)]).toEqual([listen, true]);
    }
  });

  test('says nothing of the kind on this machine alone', async () => {
    expect(await listening('c1', '--listen', '127.0.0.1:0')).not.toContain('TLS');
    expect(await listening('c2', '--listen', 'localhost:0')).not.toContain('TLS');
  });
});
