import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { AgentLink } from '../../src/gateway/agent-port.js';
import { listenGateway, type Gateway } from '../../src/gateway/gateway.js';
import { systemClock } from '../../src/runtime/clock.js';
import { silentLog } from '../../src/runtime/log.js';
import { systemRandom } from '../../src/runtime/random.js';
import {
  Seen,
  runStep,
  sessionDirectory,
  startAgent,
  startRank,
  type AgentProcess,
  type SessionDirectory,
} from '../support/agent-process.js';
import { epoch, jobId } from '../support/ids.js';
import { temporaryDirectory } from '../support/temporary-directory.js';
import { eventually } from '../support/wait.js';

const LIMIT_MS = 40_000;

const listen = (seen: Seen, port = 0): Promise<Gateway> =>
  listenGateway(
    {
      host: '127.0.0.1',
      port,
      advertise: '127.0.0.1',
      tls: null,
      clock: systemClock,
      log: silentLog,
      random: systemRandom,
    },
    seen.events,
  );

const rank = (n = 0) => ({ jobId: jobId(), epoch: epoch(), rank: n });

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    // A zombie that nobody has waited for yet runs nothing.
    return !readFileSync(`/proc/${String(pid)}/stat`, 'utf8').includes(') Z ');
  } catch {
    return false;
  }
};
const gone = (pid: number): Promise<true> => eventually(() => (isAlive(pid) ? null : true));

let seen: Seen;
let gateway: Gateway;
let session: SessionDirectory;
beforeEach(async () => {
  seen = new Seen();
  gateway = await listen(seen);
  gateway.expect(jobId(), epoch(), 1);
  session = sessionDirectory(gateway.address, null);
});
afterEach(() => gateway.close());

async function joined(environment: Readonly<Record<string, string>> = {}): Promise<[AgentLink, AgentProcess]> {
  session.give(0, gateway.issue(rank()));
  const agent = startRank(session, 0, environment);
  return [await seen.link(), agent];
}

describe('a command at an agent', () => {
  test(
    'is an argument vector: no shell reads its words, and it runs in the session directory',
    async () => {
      const [link] = await joined();
      expect(link).toMatchObject({ id: rank(), workspace: true, node: expect.stringMatching(/./) });
      expect(await link.ping(5_000)).toBe(true);
      const words = ['$(touch x)', '`touch x`', '; touch x', 'two  blanks', 'ünï', ''];
      const run = runStep(link, ['printf', '%s\\n', ...words]);
      expect(await run.end).toEqual({
        kind: 'exited',
        exitCode: 0,
        signal: null,
        stoppedBy: 'itself',
        droppedBytes: 0,
      });
      expect(run.stdout().split('\n')).toEqual([...words, '']);
      expect(existsSync(join(session.path, 'x'))).toBe(false);
      const where = runStep(link, ['pwd']);
      await where.end;
      expect(where.stdout()).toBe(`${session.path}\n`);
    },
    LIMIT_MS,
  );

  test(
    'tells its exit code, its signal, and that it could not be started',
    async () => {
      const [link] = await joined();
      const ends = [
        ['sh', '-c', 'echo oops >&2; exit 7'],
        ['sh', '-c', 'kill -KILL $$'],
        ['/no/such/program'],
        ['/etc/passwd'],
        [],
        ['a\0b'],
      ].map((argv) => runStep(link, argv));
      expect(await Promise.all(ends.map(({ end }) => end))).toMatchObject([
        { kind: 'exited', exitCode: 7, signal: null },
        { kind: 'exited', exitCode: null, signal: 'SIGKILL', stoppedBy: 'itself' },
        { kind: 'notStarted', detail: expect.stringMatching(/"\/no\/such\/program" in .*ENOENT/) },
        { kind: 'notStarted', detail: expect.stringContaining('EACCES') },
        { kind: 'notStarted' },
        { kind: 'notStarted' },
      ]);
      expect(ends[0]?.stderr()).toBe('oops\n');
    },
    LIMIT_MS,
  );

  test(
    'reads its input as it is streamed, to its end, however much there is',
    async () => {
      const [link] = await joined();
      const run = runStep(link, ['cat'], { stdin: true });
      run.control.write(Buffer.from('first '));
      await eventually(() => (run.stdout() === 'first ' ? true : null));
      const piece = Buffer.alloc(700_000, 'x');
      for (let i = 0; i < 10; i += 1) {
        run.control.write(piece);
        await run.control.inputTaken();
      }
      run.control.endInput();
      expect(await run.end).toMatchObject({ kind: 'exited', exitCode: 0 });
      expect(run.outputBytes()).toBe('first '.length + 10 * piece.length);
    },
    LIMIT_MS,
  );

  test(
    'that does not read its input holds up neither its agent nor its end',
    async () => {
      const [link] = await joined();
      const run = runStep(link, ['sleep', '60'], { stdin: true });
      run.control.write(Buffer.alloc(8 * 1024 * 1024));
      let taken = false;
      void run.control.inputTaken().then(() => (taken = true));
      const other = runStep(link, ['echo', 'here']);
      await other.end;
      expect(other.stdout()).toBe('here\n');
      expect(taken).toBe(false);
      run.control.cancel();
      expect(await run.end).toMatchObject({ kind: 'exited', signal: 'SIGTERM', stoppedBy: 'cancel' });
      await run.control.inputTaken();
    },
    LIMIT_MS,
  );

  test(
    'may write far more than its limit: what is beyond is dropped and counted to the byte',
    async () => {
      const [link] = await joined();
      const limit = 1_000_000;
      const script = 'head -c 12000000 /dev/zero; head -c 8000000 /dev/zero >&2';
      const run = runStep(link, ['sh', '-c', script], { outputLimitBytes: limit });
      expect(await run.end).toMatchObject({ kind: 'exited', exitCode: 0, droppedBytes: 20_000_000 - limit });
      expect(run.outputBytes()).toBe(limit);
    },
    LIMIT_MS,
  );

  test(
    'passes on every byte of a large output',
    async () => {
      const [link] = await joined();
      const run = runStep(link, ['head', '-c', '40000000', '/dev/zero']);
      expect(await run.end).toMatchObject({ kind: 'exited', exitCode: 0, droppedBytes: 0 });
      expect(run.outputBytes()).toBe(40_000_000);
    },
    LIMIT_MS,
  );

  test(
    'is ended at its time limit, and a cancelled one that ignores SIGTERM is killed with all that it started',
    async () => {
      const [link] = await joined();
      const late = runStep(link, ['sleep', '60'], { timeLimitMs: 200 });
      const stubborn = runStep(link, ['sh', '-c', 'trap "" TERM; sleep 61 & echo $!; wait; sleep 62']);
      const child = await eventually(() => Number(stubborn.stdout()) || null);
      stubborn.control.cancel();
      expect(await late.end).toMatchObject({ signal: 'SIGTERM', stoppedBy: 'timeLimit' });
      expect(isAlive(child)).toBe(true);
      expect(await stubborn.end).toMatchObject({ exitCode: null, signal: 'SIGKILL', stoppedBy: 'cancel' });
      await gone(child);
    },
    LIMIT_MS,
  );

  test(
    'ends although something that it left behind holds its output, inside its process group or out of it',
    async () => {
      const [link] = await joined();
      const inside = runStep(link, ['sh', '-c', 'sleep 63 & echo $!']);
      const outside = runStep(link, ['sh', '-c', 'setsid sleep 64 & echo $!']);
      expect(await inside.end).toMatchObject({ kind: 'exited', exitCode: 0, stoppedBy: 'itself' });
      expect(await outside.end).toMatchObject({ kind: 'exited', exitCode: 0, stoppedBy: 'itself' });
      await gone(Number(inside.stdout()));
      // Out of its group it is nobody's business but the scheduler's.
      process.kill(Number(outside.stdout()), 'SIGKILL');
    },
    LIMIT_MS,
  );

  test(
    'runs beside another one, each with its own output',
    async () => {
      const [link] = await joined();
      const first = runStep(link, ['sh', '-c', 'read line; echo "first $line"'], { stdin: true });
      const second = runStep(link, ['sh', '-c', 'echo second']);
      await second.end;
      first.control.write(Buffer.from('goes on\n'));
      await first.end;
      expect([first.stdout(), second.stdout()]).toEqual(['first goes on\n', 'second\n']);
    },
    LIMIT_MS,
  );

  test(
    "has the agent's environment, without the place of the credentials (INV-9)",
    async () => {
      const path = join(session.path, '.credentials', 'rank-{rank}');
      const [link] = await joined({ OPEN_COMPUTE_CREDENTIALS: path, KEPT: 'yes' });
      const run = runStep(link, ['env']);
      await run.end;
      expect(run.stdout()).toContain('KEPT=yes\n');
      expect(run.stdout()).not.toContain('OPEN_COMPUTE_CREDENTIALS');
      expect(run.stdout()).not.toContain('.credentials');
    },
    LIMIT_MS,
  );
});

describe('an agent', () => {
  test(
    'ends with code 0 when the session is over, and its commands with it',
    async () => {
      const [link, agent] = await joined();
      const run = runStep(link, ['sh', '-c', 'echo $$; exec sleep 65']);
      const pid = await eventually(() => Number(run.stdout()) || null);
      gateway.dismiss(jobId());
      expect(await run.end).toMatchObject({ kind: 'lost' });
      expect(await agent.exit).toEqual({ exitCode: 0, signal: null });
      expect(isAlive(pid)).toBe(false);
    },
    LIMIT_MS,
  );

  test.each([
    ['SIGTERM', 143],
    ['SIGINT', 130],
    ['SIGHUP', 129],
  ] as const)(
    'ends on %s with code %i once its commands are gone, those too that ignore it',
    async (signal, code) => {
      const [link, agent] = await joined();
      const run = runStep(link, ['sh', '-c', 'trap "" TERM HUP INT; echo $$; sleep 66; sleep 67']);
      const quick = runStep(link, ['sh', '-c', 'echo $$; exec sleep 68']);
      const pids = await eventually(() => {
        const found = [Number(run.stdout()), Number(quick.stdout())];
        return found.includes(0) ? null : found;
      });
      agent.kill(signal);
      expect(await agent.exit).toEqual({ exitCode: code, signal: null });
      expect(pids.map(isAlive)).toEqual([false, false]);
      expect(await quick.end).toMatchObject({ kind: 'exited', stoppedBy: 'cancel' });
      await eventually(() => seen.left[0] ?? null);
    },
    LIMIT_MS,
  );

  test(
    'ends the commands of a lost connection, and comes back with the credential that a restarted gateway issues',
    async () => {
      const [link, agent] = await joined();
      const run = runStep(link, ['sh', '-c', 'echo $$; exec sleep 69']);
      const pid = await eventually(() => Number(run.stdout()) || null);
      const { port } = gateway.address;
      await gateway.close();
      expect(await run.end).toMatchObject({ kind: 'lost' });
      expect(seen.left).toEqual([]);
      await gone(pid);

      gateway = await listen(seen, port);
      gateway.expect(jobId(), epoch(), 1);
      expect(gateway.lacking()).toEqual([rank()]);
      session.give(0, gateway.issue(rank()));
      const again = runStep(await seen.link(2), ['echo', 'back']);
      await again.end;
      expect(again.stdout()).toBe('back\n');
      expect(gateway.lacking()).toEqual([]);
      expect(isAlive(agent.pid)).toBe(true);
    },
    LIMIT_MS,
  );

  test(
    'finds a gateway that came up again at another address, and is not confused by settings that it cannot read',
    async () => {
      const [, agent] = await joined();
      await gateway.close();
      writeFileSync(session.config, 'half a fi');
      await eventually(() => (agent.said().includes('not connected') ? true : null));
      gateway = await listen(seen);
      gateway.expect(jobId(), epoch(), 1);
      session.moved(gateway.address);
      session.give(0, gateway.issue(rank()));
      expect((await seen.link(2)).id).toEqual(rank());
      expect(isAlive(agent.pid)).toBe(true);
    },
    LIMIT_MS,
  );

  test(
    'waits for its credential, and tries the next one after a refusal',
    async () => {
      const agent = startRank(session, 0);
      await eventually(() => (agent.said().includes('no credential') ? true : null));
      session.give(0, 'v1.not-a-credential');
      await eventually(() => (agent.said().includes('refused') ? true : null));
      session.give(0, gateway.issue(rank()));
      await seen.link();
    },
    LIMIT_MS,
  );

  test(
    "ends with a code of its own when the session's directory has been gone for a while",
    async () => {
      const [, agent] = await joined();
      rmSync(session.path, { recursive: true });
      expect(await agent.exit).toEqual({ exitCode: 3, signal: null });
      expect(agent.said()).toContain('is gone');
    },
    LIMIT_MS,
  );

  test(
    'ends with a code of its own when no gateway could be reached for as long as a session may be idle',
    async () => {
      session.moved({ host: '127.0.0.1', port: 1 }, { aloneLimitS: 1 });
      session.give(0, 'v1.nobody-is-there');
      const agent = startRank(session, 0);
      expect(await agent.exit).toEqual({ exitCode: 4, signal: null });
      expect(agent.said()).toContain('nobody has reached this agent for 1 s');
    },
    LIMIT_MS,
  );

  test(
    'says what is wrong with how it was started, and exits with 2',
    async () => {
      const good = JSON.parse(readFileSync(session.config, 'utf8')) as object;
      const directory = temporaryDirectory();
      mkdirSync(directory, { recursive: true });
      const config = (name: string, content: string): string => {
        const path = join(directory, name);
        writeFileSync(path, content);
        return path;
      };
      const changed = (name: string, change: object): string => config(name, JSON.stringify({ ...good, ...change }));
      const cases = [
        [[], {}, 'usage: '],
        [[session.config], {}, 'usage: '],
        [['/no/such.json', 'TEST_RANK'], {}, 'ENOENT'],
        [[config('text', 'not json'), 'TEST_RANK'], {}, 'JSON'],
        [[changed('host', { host: '' }), 'TEST_RANK'], {}, '"host"'],
        [[changed('port', { port: 70_000 }), 'TEST_RANK'], {}, '"port"'],
        [[changed('trust', { trust: undefined }), 'TEST_RANK'], {}, '"trust"'],
        [[changed('dir', { directory: 'here' }), 'TEST_RANK'], {}, '"directory"'],
        [[changed('cred', { credentials: undefined }), 'TEST_RANK'], {}, 'OPEN_COMPUTE_CREDENTIALS'],
        [[session.config, 'NO_SUCH_VARIABLE'], {}, 'NO_SUCH_VARIABLE'],
        [[session.config, 'TEST_RANK'], { TEST_RANK: 'one' }, '"one"'],
      ] as const;
      for (const [argv, environment, word] of cases) {
        const agent = startAgent(argv, 0, environment);
        expect({ word, exit: await agent.exit }).toEqual({ word, exit: { exitCode: 2, signal: null } });
        expect(agent.said()).toContain(word);
      }
    },
    LIMIT_MS,
  );
});
