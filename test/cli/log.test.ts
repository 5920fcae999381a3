import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { createWebSocketReceiver, type StatelyInspectionEvent } from '@statelyai/inspect';
import { WebSocket, WebSocketServer } from 'ws';
import { EXIT } from '../../src/cli/exit-codes.js';
import { openStateDirectory } from '../../src/events/state-directory.js';
import type { Append } from '../../src/events/store.js';
import { foldJob, phaseOf } from '../../src/machines/job-aggregate.js';
import type { JobEvent } from '../../src/machines/job-events.js';
import { jobId } from '../support/ids.js';
import { at, conclusiveEvidence } from '../support/job-events.js';
import { createdJob, LIFE, stream, wholeLife } from '../support/logs.js';
import { temporaryDirectory } from '../support/temporary-directory.js';
import { eventually } from '../support/wait.js';
import { cli, jsonLines, start } from './support/cli.js';

const open = (path: string) =>
  openStateDirectory(path, { mode: 'write', create: true, writer: 'test', nowMs: () => 1000 });

async function logOf(path: string, appends: readonly Append[]): Promise<string> {
  const state = await open(path);
  for (const append of appends) await state.store.append(append);
  await state.close();
  return path;
}

/** A submission whose answer was lost, in the middle of an outage, and what was done about it. */
const LOST: readonly JobEvent[] = [at(5).started(), at(10).lost(), ...conclusiveEvidence(), at(1200).disproved()];

const outage = (version: number, event: 'outage.began' | 'outage.ended', atMs: number): Append => ({
  stream: 'backend/test',
  expectedVersion: version,
  events: [
    event === 'outage.began'
      ? { type: event, v: 1, atMs, part: 'queue', kind: 'timedOut', detail: 'no answer in 5 s', jobsKept: 31 }
      : { type: event, v: 1, atMs, part: 'queue' },
  ],
});

let directory: string;
let file: string;

beforeAll(async () => {
  const home = temporaryDirectory();
  directory = await logOf(join(home, 'state'), [
    wholeLife(1),
    { stream: stream(2), expectedVersion: 0, events: [createdJob(2), ...LOST.slice(0, 4)] },
    outage(0, 'outage.began', 150),
    outage(1, 'outage.ended', 160),
    { stream: stream(2), expectedVersion: 5, events: LOST.slice(4) },
  ]);
  file = join(home, 'log.jsonl');
  writeFileSync(file, (await cli(['events', 'export', '--state-dir', directory])).stdout);
});

describe('replay', () => {
  test('INV-12 prints the state after each event, the same from a state directory and from its export', async () => {
    const fromDirectory = await cli(['replay', directory, '--json']);
    expect(fromDirectory.code).toBe(EXIT.ok);
    expect((await cli(['replay', file, '--json'])).stdout).toBe(fromDirectory.stdout);

    const states = jsonLines(fromDirectory.stdout) as { stream: string; event: string; state: { phase: string } }[];
    const life = states.filter((line) => line.stream === stream(1)).map(({ state }) => state.phase);
    const events = [createdJob(1), ...LIFE];
    expect(life).toEqual(events.map((_, index) => phaseOf(foldJob(events.slice(0, index + 1)))));
    expect(states.filter((line) => line.stream === 'backend/test').map(({ state }) => state)).toEqual([null, null]);
  });

  test('for people: one line per event, with the change of phase and the reason', async () => {
    const { stdout } = await cli(['replay', directory, '--job', jobId(2)]);
    const lines = stdout.trimEnd().split('\n');
    expect(lines).toHaveLength(LOST.length + 1);
    expect(lines[0]).toMatch(/^ +\d+ {2}1970-01-01T00:00:00\.000Z {2}job\/job_0+2@1 {2}job\.created {2}Submitting$/);
    expect(lines[2]).toMatch(/submission\.lost {2}Submitting -> Unknown$/);
    expect(lines.at(-1)).toMatch(/submission\.disproved {2}Unknown -> Submitting$/);
  });

  test('--until stops after the nth event: of the log, or of the job', async () => {
    expect((await cli(['replay', file, '--until', '3'])).stdout.trimEnd().split('\n')).toHaveLength(3);
    const last = (await cli(['replay', file, '--job', jobId(2), '--until', '3'])).stdout.trimEnd().split('\n');
    expect(last).toHaveLength(3);
    expect(last[2]).toContain('submission.lost');
  });

  test('reads beside the process that writes, and changes nothing', async () => {
    const path = join(temporaryDirectory(), 'state');
    const state = await open(path);
    await state.store.append(wholeLife(3));
    const before = readdirSync(path).sort();
    expect((await cli(['replay', path])).stdout.trimEnd().split('\n')).toHaveLength(9);
    expect(readdirSync(path).sort()).toEqual(before);
    await state.close();
  });

  test('a log that no state can take is an error that names the place, after what could be replayed', async () => {
    const path = await logOf(join(temporaryDirectory(), 'state'), [
      { stream: stream(4), expectedVersion: 0, events: [createdJob(4), at(5).accepted()] },
    ]);
    const { code, stdout, stderr } = await cli(['replay', path]);
    expect(code).toBe(EXIT.storage);
    expect(stdout.trimEnd().split('\n')).toHaveLength(1);
    expect(stderr).toContain(`${stream(4)}, version 2, position 2: submission.accepted is illegal in Submitting`);
  });

  test.each([
    ['a path that is not there', ['/nonexistent/log'], EXIT.notFound, 'does not exist'],
    ['a directory without a log', ['/proc/self'], EXIT.notFound, 'there is no such log'],
    ['a file that is no log', [import.meta.filename], EXIT.usage, 'log.test.ts:1: no JSON'],
    ['text that is no job id', ['/tmp', '--job', 'job_1\n'], EXIT.usage, '"job_1\\\\x0a" is no job id'],
  ])('%s', async (_, args, code, message) => {
    const ended = await cli(['replay', ...args]);
    expect(ended.code).toBe(code);
    expect(ended.stderr).toContain(message);
  });

  test('a job that the log does not know is not found', async () => {
    const { code, stderr } = await cli(['replay', directory, '--job', jobId(99)]);
    expect([code, stderr]).toEqual([EXIT.notFound, `open-compute: there is no ${jobId(99)} in ${directory}\n`]);
  });
});

describe('explain', () => {
  const explain = (n: number, ...more: string[]) => cli(['explain', jobId(n), '--state-dir', directory, ...more]);

  test('INV-8 shows each piece of evidence, and why it was or was not enough to submit again', async () => {
    const { code, stdout } = await explain(2);
    expect(code).toBe(EXIT.ok);
    expect(stdout).toContain('the answer was lost: no answer within the time limit; the request may have taken effect');
    expect(stdout).toContain('asked queue for the token at 1970-01-01T00:00:00Z: not here');
    expect(stdout).toContain('[ ] every process of the attempt has ended');
    expect(stdout).toContain('[x] every process of the attempt has ended');
    expect(stdout).toContain('[ ] queue said "not here" 1 of 3 times');
    expect(stdout).toContain('=> not enough to submit again: 4 of 4 conditions are not met');
    expect(stdout).toContain('=> enough: it may be submitted again');
    expect(stdout).toContain('=> a conclusive negative: the submission never landed; it is submitted again');
    // Not before all of it is there.
    const enough = stdout.indexOf('=> enough');
    expect(stdout.slice(0, enough).match(/not here \(it has answered/g)).toHaveLength(6);
  });

  test('INV-10 shows the outages of the backend where they fell', async () => {
    const { stdout } = await explain(2);
    const [began, ended, concluded] = [
      "OUTAGE: the backend's queue can not be asked (timedOut: no answer in 5 s); 31 jobs kept as they were",
      "the backend's queue answers again",
      'concluded that the submission never landed',
    ].map((text) => stdout.indexOf(text));
    expect(began).toBeGreaterThan(0);
    expect(ended).toBeGreaterThan(began ?? 0);
    expect(concluded).toBeGreaterThan(ended ?? 0);
    expect((await explain(1)).stdout).not.toContain('OUTAGE');
  });

  test('--json gives the same as objects', async () => {
    const { stdout } = await explain(1, '--json');
    const { chapters } = JSON.parse(stdout) as { chapters: { event: string; phase: string | null }[] };
    expect(chapters.map(({ event }) => event)).toEqual(['job.created', ...LIFE.map(({ type }) => type)]);
    expect(chapters.map(({ phase }) => phase).filter(Boolean)).toEqual([
      'Submitting',
      'Pending',
      'Running',
      'Completed',
    ]);
  });

  test('without --state-dir the directories below the state home are looked through', async () => {
    const home = temporaryDirectory();
    mkdirSync(join(home, 'open-compute', 'empty'), { recursive: true });
    await logOf(join(home, 'open-compute', 'worker-a'), [wholeLife(7)]);
    await logOf(join(home, 'open-compute', 'worker-b'), [wholeLife(8)]);
    const env = { XDG_STATE_HOME: home };
    expect((await cli(['explain', jobId(8)], { env })).stdout).toContain('the coordinator took the outcome');
    const missing = await cli(['explain', jobId(9)], { env });
    expect(missing.code).toBe(EXIT.notFound);
    expect(missing.stderr).toContain('--state-dir');
  });

  test('what a backend said can not steer a terminal', async () => {
    const path = await logOf(join(temporaryDirectory(), 'state'), [
      {
        stream: stream(5),
        expectedVersion: 0,
        events: [createdJob(5), at(1).started(), at(2).accepted(), at(3).pending('queued', '\x1b[2J\x9b')],
      },
    ]);
    const { stdout } = await cli(['explain', jobId(5), '--state-dir', path]);
    expect(stdout).toContain('\\x1b[2J\\x9b');
    expect(stdout).not.toMatch(/[\x1b\x9b]/);
  });
});

describe('inspect', () => {
  interface Message {
    readonly type: string;
    readonly event?: { readonly type: string };
    readonly snapshot?: { readonly value: string; readonly status: string };
  }
  const argv = (...more: string[]) => ['inspect', jobId(1), '--state-dir', directory, ...more];

  test('sends the events through a live machine: its snapshots are the states of the fold', async () => {
    const { code, stdout } = await cli(argv());
    expect(code).toBe(EXIT.ok);
    const messages = jsonLines(stdout) as Message[];
    expect(messages[0]?.type).toBe('@xstate.actor');
    const values = messages.flatMap((message) =>
      message.type === '@xstate.snapshot' ? [message.snapshot?.value] : [],
    );
    const events = [createdJob(1), ...LIFE.slice(0, 6)];
    expect(values).toEqual(events.map((_, index) => phaseOf(foldJob(events.slice(0, index + 1)))));
    expect(messages.at(-1)?.snapshot?.status).toBe('done');
  });

  test('--ws PORT: a receiver of the Stately inspector gets the same, and the command ends when it has gone', async () => {
    const lines = jsonLines((await cli(argv())).stdout);
    const running = start(argv('--ws', '0'));
    const port = await eventually(() => /127\.0\.0\.1:(\d+)/.exec(running.stderr())?.[1] ?? null);
    const page = await fetch(`http://127.0.0.1:${port}/`);
    expect(await page.text()).toContain('https://stately.ai/inspect');

    const received: StatelyInspectionEvent[] = [];
    const receiver = createWebSocketReceiver({ server: `ws://127.0.0.1:${port}` });
    receiver.subscribe((message) => received.push(message));
    await eventually(() => (received.length === lines.length ? true : null));
    expect(received).toEqual(lines);

    running.interrupt();
    expect((await running.ended).code).toBe(EXIT.ok);
  });

  test('--ws PORT: another page in the same browser gets nothing', async () => {
    const running = start(argv('--ws', '0'));
    const port = await eventually(() => /127\.0\.0\.1:(\d+)/.exec(running.stderr())?.[1] ?? null);
    const connect = (origin?: string) =>
      new Promise<string>((resolve) => {
        const socket = new WebSocket(`ws://127.0.0.1:${port}`, origin === undefined ? {} : { origin });
        socket.once('message', () => {
          socket.close();
          resolve('messages');
        });
        socket.once('error', (error) => resolve(error.message));
      });
    expect(await connect('https://evil.example')).toContain('401');
    expect(await connect(`http://127.0.0.1:${port}`)).toBe('messages');
    expect((await running.ended).code).toBe(EXIT.ok);
  });

  test('--ws URL: sends to a receiver that listens, and ends', async () => {
    const received: unknown[] = [];
    const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
    server.on('connection', (socket) =>
      socket.on('message', (data: Buffer) => received.push(JSON.parse(data.toString()))),
    );
    await eventually(() => server.address());
    const { port } = server.address() as AddressInfo;
    const { code } = await cli(argv('--ws', `ws://127.0.0.1:${String(port)}`));
    expect(code).toBe(EXIT.ok);
    expect(received).toEqual(jsonLines((await cli(argv())).stdout));
    server.close();
  });

  test.each([
    ['nobody listens there', 'ws://127.0.0.1:9', EXIT.unreachable, 'no inspector answers at ws://127.0.0.1:9'],
    ['neither port nor URL', 'http://x', EXIT.usage, '--ws takes a port, or the URL of a receiver'],
    ['no port', '70000', EXIT.usage, '--ws takes a port, or the URL of a receiver'],
  ])('--ws: %s', async (_, ws, code, message) => {
    const ended = await cli(argv('--ws', ws));
    expect([ended.code, ended.stdout]).toEqual([code, '']);
    expect(ended.stderr).toContain(message);
  });
});

describe('events', () => {
  test('an export imports into an empty directory, once or twice, as a whole or one stream of it', async () => {
    const target = join(temporaryDirectory(), 'copy');
    const first = await cli(['events', 'import', file, '--state-dir', target, '--json']);
    expect(JSON.parse(first.stdout)).toEqual({ imported: 22, alreadyThere: 0 });
    const again = await cli(['events', 'import', file, '--state-dir', target]);
    expect(again.stdout).toBe('0 events imported, 22 were there already\n');
    const [one, other] = await Promise.all(
      [directory, target].map((dir) => cli(['events', 'export', '--state-dir', dir, '--stream', stream(2)])),
    );
    expect(one?.stdout.split('\n')).toHaveLength(12);
    expect(other?.stdout).toBe(one?.stdout);

    const single = join(temporaryDirectory(), 'one');
    await cli(['events', 'import', file, '--state-dir', single, '--stream', stream(2)]);
    expect((await cli(['replay', single, '--json'])).stdout).toContain('submission.disproved');
  });

  test('a bad line is named, and nothing of the import is written', async () => {
    const home = temporaryDirectory();
    const bad = join(home, 'bad.jsonl');
    writeFileSync(
      bad,
      (await cli(['events', 'export', '--state-dir', directory])).stdout.replace('"attempt":1', '"attempt":0'),
    );
    const target = join(home, 'copy');
    const { code, stderr } = await cli(['events', 'import', bad, '--state-dir', target]);
    expect(code).toBe(EXIT.usage);
    expect(stderr).toContain(`${bad}:2: no recorded event`);
    expect((await cli(['events', 'export', '--state-dir', target])).stdout).toBe('');
  });

  test('a directory that is in use is refused at once, and its user is named', async () => {
    const path = join(temporaryDirectory(), 'state');
    const state = await open(path);
    const { code, stderr } = await cli(['events', 'import', file, '--state-dir', path]);
    expect(code).toBe(EXIT.storage);
    expect(stderr).toMatch(/it is in use by process \d+ on .*\(test, since/);
    await state.close();
  });

  test.each([
    ['no log', ['export', '--state-dir', '/nonexistent'], EXIT.notFound, 'there is no such log'],
    ['no stream of that name', ['export', '--state-dir', '.', '--stream', 'jobs'], EXIT.usage, '"jobs" is no stream'],
    [
      'nothing to import',
      ['import', '/nonexistent', '--state-dir', 'new'],
      EXIT.usage,
      '"/nonexistent" can not be read',
    ],
  ])('%s: says so, and makes nothing', async (_, args, code, message) => {
    const cwd = temporaryDirectory();
    const ended = await cli(['events', ...args], { cwd });
    expect(ended.code).toBe(code);
    expect(ended.stderr).toContain(message);
    expect(readdirSync(cwd)).toEqual([]);
  });

  test('a stream that is not in the log is not found', async () => {
    const ended = await cli(['events', 'export', '--state-dir', directory, '--stream', stream(50)]);
    expect([ended.code, ended.stdout]).toEqual([EXIT.notFound, '']);
  });
});
