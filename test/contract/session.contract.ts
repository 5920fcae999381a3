import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { SessionInfo } from '../../src/coordinator/session-api.js';
import { eventually } from '../support/wait.js';
import { answerTo, gatewayOf, half, type Finished, type SessionHints, type SessionSite } from './session-site.js';

const READY_LIMIT_S = '60';
/** The default limit of a step's output. */
const OUTPUT_LIMIT = 16 * 1024 * 1024;

/** What sessions promise, whatever backend they run on. The tests share one gang, and use it up in their order. */
export function describeSessions(name: string, open: () => Promise<SessionSite>, hints: SessionHints): void {
  const { patienceMs, nodeVariable, rankVariable } = hints;
  jest.setTimeout(2 * (patienceMs + hints.recoveryMs));

  describe(`sessions: ${name}`, () => {
    let site: SessionSite;
    let gang: string;
    const beats = { idle: Promise.resolve('') };

    beforeAll(async () => {
      site = await open();
      // It has to be left alone for longer than anything else here takes.
      beats.idle = start('brief');
      gang = (await ok(['session', 'start', '--profile', 'gang'])).stdout.trim();
    });
    afterAll(async () => {
      await site.close();
    });

    async function ok(argv: readonly string[], stdin?: string): Promise<Finished> {
      const done = await site.run(argv, stdin);
      if (done.exitCode !== 0) throw new Error(`${argv.join(' ')}: exit ${String(done.exitCode)}: ${done.stderr}`);
      return done;
    }
    const start = async (profile: string): Promise<string> => {
      const argv = ['session', 'start', '--profile', profile, '--wait', '--wait-limit', READY_LIMIT_S];
      return (await ok(argv)).stdout.trim();
    };
    const inSession = (verb: 'run' | 'exec', options: readonly string[], ...command: readonly string[]): string[] => [
      ...['session', verb, gang, ...options, '--'],
      ...command,
    ];
    const info = async (id = gang): Promise<SessionInfo> =>
      SessionInfo.parse(JSON.parse((await ok(['session', 'status', id, '--json'])).stdout));
    const session = async (id = gang): Promise<NonNullable<SessionInfo['session']>> => {
      const seen = (await info(id)).session;
      if (seen === null) throw new Error('the worker has not spoken of it');
      return seen;
    };
    const until = async (id: string, state: string, limitMs = patienceMs): Promise<void> => {
      await eventually(async () => ((await info(id)).session?.state === state ? true : null), limitMs);
    };
    const jobDirectory = async (): Promise<string> => join(site.directory, 'runs', String((await session()).jobId));
    const events = async (): Promise<
      readonly { stream: string; event: { type: string } & Record<string, unknown> }[]
    > =>
      (await ok(['events', 'export', '--state-dir', 'worker-state'])).stdout
        .trimEnd()
        .split('\n')
        .map((line) => Recorded.parse(JSON.parse(line)));

    test('INV-5: three of four ranks are in, and the session says which one it waits for', async () => {
      await eventually(async () => ((await info()).session?.ranksIn.length === 3 ? true : null), patienceMs);
      const waiting = await session();
      expect([waiting.state, waiting.words.replace('waiting for the allocation; ', '')]).toEqual([
        expect.stringMatching(/^(Waiting|Starting)$/),
        '3 of 4 ranks; waiting for rank 2',
      ]);
      expect(waiting.readiness).toMatchObject({ workspace: true, ranks: false, agent: false });
      writeFileSync(join(site.directory, 'go'), '');
      await until(gang, 'Ready');
      expect((await session()).ranksIn.map(({ rank }) => rank)).toEqual([0, 1, 2, 3]);
      expect((await ok(['session', 'list'])).stdout).toMatch(/gang +Ready +- +4\/4/);
    });

    test('run works on all nodes of the allocation, in its directory, with what its profile gives', async () => {
      const { stdout } = await ok(inSession('run', ['--nodes', '4', '--tasks', '4'], 'printenv', nodeVariable));
      expect(new Set(stdout.trim().split('\n')).size).toBe(4);
      const one = await ok(inSession('run', [], 'sh', '-c', 'pwd; echo "$GIVEN"'));
      expect(one.stdout).toBe(`${await jobDirectory()}\na 'b'\n`);
    });

    test('exec runs at the agent of the rank that is named, with standard input and the exit code', async () => {
      expect((await ok(inSession('exec', ['--rank', '2'], 'printenv', rankVariable))).stdout).toBe('2\n');
      expect((await ok(inSession('exec', ['-i'], 'tr', 'a-z', 'A-Z'), 'hello\n')).stdout).toBe('HELLO\n');
      const words = await ok(inSession('exec', [], 'printf', '%s|', '$(touch planted)', '`x`', '; y', ''));
      expect(words.stdout).toBe('$(touch planted)|`x`|; y||');
      expect((await site.run(inSession('exec', [], 'sh', '-c', 'exit 7'))).exitCode).toBe(7);
      expect((await site.run(inSession('run', [], 'sh', '-c', 'exit 9'))).exitCode).toBe(9);
    });

    test('several steps run at once, by both ways', async () => {
      const script = (mine: string, other: string): string =>
        `: >${mine}; while [ ! -e ${other} ]; do sleep 0.05; done; echo met`;
      const [a, b] = await Promise.all([
        ok(inSession('run', [], 'sh', '-c', script('meet-a', 'meet-b'))),
        ok(inSession('exec', ['--rank', '3'], 'sh', '-c', script('meet-b', 'meet-a'))),
      ]);
      expect([a.stdout, b.stdout]).toEqual(['met\n', 'met\n']);
    });

    test('200 MB of output are drained, a part of them is handed over, and the rest is told', async () => {
      for (const verb of ['run', 'exec'] as const) {
        const large = await ok(inSession(verb, [], 'sh', '-c', 'head -c 200000000 /dev/zero | tr "\\0" x'));
        expect([large.stdout.length, /^x+$/.test(large.stdout)]).toEqual([OUTPUT_LIMIT, true]);
        expect(large.stderr).toContain(`${String(200_000_000 - OUTPUT_LIMIT)} bytes of output beyond`);
      }
    });

    test('a step that is cancelled, or over its time, has ended; the allocation stays', async () => {
      const before = await session();
      for (const verb of ['run', 'exec'] as const) {
        const step = site.start(inSession(verb, [], 'sh', '-c', 'echo up; sleep 600'));
        await eventually(() => (step.stdout().includes('up') ? true : null), patienceMs);
        step.interrupt();
        expect((await step.ended).stderr).toContain('was cancelled');
        const late = await site.run(inSession(verb, ['--time-limit', '1'], 'sleep', '600'));
        expect(late.exitCode).toBe(124);
      }
      const { steps, state, jobId } = await session();
      expect(steps.slice(-4).map(({ end }) => end?.how)).toEqual(['cancelled', 'timeLimit', 'cancelled', 'timeLimit']);
      expect([state, jobId]).toEqual(['Ready', before.jobId]);
    });

    test('INV-4: what does not fit into the allocation is refused, and nothing is started', async () => {
      for (const argv of [
        inSession('run', ['--nodes', '5'], 'true'),
        inSession('run', ['--nodes', '4', '--tasks', '2'], 'true'),
        inSession('exec', ['--rank', '4'], 'true'),
        inSession('exec', [], '/no/such/command'),
      ]) {
        const refused = await site.run(argv);
        expect([refused.exitCode, refused.stderr]).toEqual([1, expect.stringContaining('refused')]);
      }
    });

    test('a coordinator that restarts loses no step, and is told of the session anew', async () => {
      const step = site.start(
        inSession('run', [], 'sh', '-c', 'echo one; while [ ! -e two ]; do sleep 0.05; done; echo two'),
      );
      await eventually(() => (step.stdout() === 'one\n' ? true : null), patienceMs);
      await site.restartCoordinator();
      writeFileSync(join(await eventually(async () => directoryOf(await info()), patienceMs), 'two'), '');
      expect(await step.ended).toMatchObject({ exitCode: 0, stdout: 'one\ntwo\n' });
    });

    const directoryOf = ({ session: seen }: SessionInfo): string | null =>
      seen?.jobId === null || seen === null ? null : join(site.directory, 'runs', seen.jobId);

    test('whoever stops reading ends the command: nothing goes on for nobody', async () => {
      const reader = inSession('run', [], 'sh', '-c', 'echo $$ >yes.pid; exec yes');
      const quoted = reader.map((word) => `'${word}'`).join(' ');
      expect((await site.shell(`open-compute ${quoted} | head -1`)).stdout).toBe('y\n');
      await eventually(async () => {
        const { steps } = await session();
        return steps.at(-1)?.end?.how === 'cancelled' ? true : null;
      }, patienceMs);
    });

    test('output that only the coordinator held is missed, and that is said, whatever the exit code', async () => {
      const reader = inSession('run', [], 'seq', '1', '500000')
        .map((word) => `'${word}'`)
        .join(' ');
      // The reader takes its time: the pipe is full, the rest waits at the coordinator and at the worker.
      const slow = site.startShell(
        `open-compute ${reader} 2>said | { while [ ! -e read-on ]; do sleep 0.05; done; cat; }`,
      );
      await eventually(async () => ((await session()).steps.at(-1)?.end?.how === 'exited' ? true : null), patienceMs);
      await site.restartCoordinator();
      writeFileSync(join(site.directory, 'read-on'), '');
      const { stdout } = await slow.ended;
      const said = readFileSync(join(site.directory, 'said'), 'utf8');
      const all = Array.from({ length: 500_000 }, (_, n) => `${String(n + 1)}\n`).join('');
      expect(all.startsWith(stdout)).toBe(true);
      expect(stdout.length).toBeLessThan(all.length);
      expect(said).toMatch(/missing/);
    });

    test.each(['SIGTERM', 'SIGKILL'] as const)(
      'after %s the worker takes the session up again; of the step that ran it says that it can not speak for it',
      async (signal) => {
        const directory = await jobDirectory();
        const { jobId } = await session();
        const step = site.start(
          inSession(
            'run',
            [],
            'sh',
            '-c',
            `echo up; while [ ! -e on-${signal} ]; do sleep 0.05; done; : >after-${signal}`,
          ),
        );
        await eventually(() => (step.stdout() === 'up\n' ? true : null), patienceMs);
        await site.restartWorker(signal);
        const ended = await step.ended;
        expect([ended.exitCode, ended.stderr]).toEqual([6, expect.stringMatching(/worker restarted.*may still run/)]);
        await until(gang, 'Ready');
        // It went on, like a job.
        writeFileSync(join(directory, `on-${signal}`), '');
        await eventually(() => (existsSync(join(directory, `after-${signal}`)) ? true : null), patienceMs);
        expect((await ok(inSession('exec', ['--rank', '1'], 'printenv', rankVariable))).stdout).toBe('1\n');
        expect((await ok(inSession('run', [], 'echo', 'on'))).stdout).toBe('on\n');
        expect((await session()).jobId).toBe(jobId);
      },
    );

    test('INV-7: a credential that was used is refused with one word, and the reason is in the log alone', async () => {
      const used = readFileSync(join(await jobDirectory(), 'credentials', 'rank-0'), 'utf8').trim();
      const { port, host } = gatewayOf(site.workerLog());
      expect(await answerTo(host, port, `${used}\n`)).toBe('refused\n');
      expect(await answerTo(host, port, 'let me in\n')).toBe('refused\n');
      expect(site.workerLog()).toContain('was used before');
      expect(site.workerLog()).not.toContain(used);
    });

    test('500 connections that never finish keep nobody out', async () => {
      const { port, host } = gatewayOf(site.workerLog());
      const open = await Promise.all(Array.from({ length: 500 }, () => half(host, port)));
      const other = await start('brief');
      expect((await ok(['session', 'exec', other, '--', 'echo', 'in'])).stdout).toBe('in\n');
      expect((await ok(inSession('exec', [], 'echo', 'still in'))).stdout).toBe('still in\n');
      for (const socket of open) socket.destroy();
      await ok(['session', 'stop', other, '--wait']);
    });

    test('INV-9: no environment holds a credential, only the place where it was', async () => {
      const directory = join(await jobDirectory(), 'credentials');
      const secrets = readdirSync(directory).map((rank) => readFileSync(join(directory, rank), 'utf8').trim());
      const agent = 'cat /proc/$PPID/environ | tr "\\0" "\\n"';
      const seen = await Promise.all([
        ok(inSession('exec', [], 'env')),
        ok(inSession('run', [], 'env')),
        ok(inSession('exec', [], 'sh', '-c', agent)),
      ]);
      const all = seen.map(({ stdout }) => stdout).join('\n');
      expect(secrets).toHaveLength(4);
      for (const secret of secrets) for (const part of secret.split('.').slice(-2)) expect(all).not.toContain(part);
      expect(seen[2].stdout).toMatch(/^OPEN_COMPUTE_CREDENTIALS=.*\/credentials\/rank-\{rank\}$/m);
      expect(seen[0].stdout).not.toContain('OPEN_COMPUTE_CREDENTIALS');
    });

    test('a session whose job is lost comes back as a new job; users are told, and old agents are refused', async () => {
      const before = await session();
      const old = await jobDirectory();
      await site.loseJob(String(before.jobId));
      await eventually(async () => ((await info()).session?.epoch === 2 ? true : null), hints.recoveryMs);
      await until(gang, 'Ready');
      const after = await session();
      expect(after.jobId).not.toBe(before.jobId);
      expect(after.recoveries).toBe(1);
      const first = await ok(inSession('run', [], 'echo', 'again'));
      expect([first.stdout, first.stderr]).toEqual(['again\n', expect.stringContaining('in memory is gone')]);
      expect((await ok(inSession('run', [], 'echo', 'again'))).stderr).not.toContain('in memory');
      const { port, host } = gatewayOf(site.workerLog());
      const stale = readFileSync(join(old, 'credentials', 'rank-1'), 'utf8');
      expect(await answerTo(host, port, stale)).toBe('refused\n');
    });

    test('when one agent is killed the gang ends as one, and run is refused after that', async () => {
      await site.run(inSession('exec', ['--rank', '1'], 'sh', '-c', 'kill -9 $PPID'));
      await eventually(async () => ((await info()).task.phase === 'Failed' ? true : null), patienceMs);
      await until(gang, 'Ended');
      const late = await site.run(inSession('run', [], 'true'));
      expect([late.exitCode, late.stderr]).toEqual([1, expect.stringContaining('has ended')]);
    });

    test('a session that nobody uses ends, though its agents are well: steps first, then the allocation', async () => {
      const idle = await beats.idle;
      const { task } = await eventually(
        async () => {
          const seen = await info(idle);
          return seen.task.phase === 'Leased' ? null : seen;
        },
        hints.idleLimitS * 1000 + patienceMs,
      );
      expect(task).toMatchObject({ phase: 'Cancelled', reason: 'SESSION_IDLE_TIMEOUT' });
      const log = await events();
      const jobId = task.jobs.at(-1)?.jobId;
      const order = log
        .filter(({ stream }) => stream === `session/${idle}` || stream === `job/${String(jobId)}`)
        .map(({ event }) => event.type)
        .filter((type) => ['session.ending', 'cancel.requested', 'cancel.sent', 'session.ended'].includes(type));
      expect([...new Set(order)]).toEqual(['session.ending', 'cancel.requested', 'cancel.sent', 'session.ended']);
    });

    test('stop ends a session with its steps; the log replays to that end', async () => {
      const last = await start('brief');
      const step = site.start(['session', 'exec', last, '--', 'sleep', '600']);
      await eventually(async () => ((await session(last)).steps.length > 0 ? true : null), patienceMs);
      expect((await ok(['session', 'stop', last, '--wait'])).stdout).toContain('USER_CANCELLED');
      expect((await step.ended).exitCode).not.toBe(0);
      const replayed = await ok(['replay', 'worker-state']);
      const lines = replayed.stdout.split('\n').filter((line) => line.includes(`session/${last}@`));
      expect(lines.some((line) => /step\.ended/.test(line))).toBe(true);
      expect(lines.at(-1)).toMatch(/session\.ended +Ending -> Ended \(USER_CANCELLED\)/);
    });
  });
}

const Recorded = z.object({ stream: z.string(), event: z.looseObject({ type: z.string() }) });
