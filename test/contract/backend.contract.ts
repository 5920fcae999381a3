import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type {
  Backend,
  CancelTarget,
  JobAnswer,
  Profile,
  SeenAnswer,
  SubmitRequest,
  WatchItem,
} from '../../src/backend.js';
import type { Handle } from '../../src/machines/vocabulary.js';
import { collectResult } from '../../src/workdir/collect.js';
import { jobFiles, prepareDirectory, removeDirectory, type JobFiles } from '../../src/workdir/directory.js';
import { jobIdOf, nextToken } from '../support/job-directory.js';
import { runStep, stepRequest } from '../support/steps.js';
import { eventually } from '../support/wait.js';

// Real processes on a busy machine: the bound is for a hang, not for speed.
jest.setTimeout(60_000);

/** One backend in its own runs directory. */
export interface BackendHarness {
  readonly backend: Backend;
  /** Absolute, checked. */
  readonly runsDir: string;
  /** A profile whose script is this text, with whatever placement the backend needs. */
  profile(scriptText: string, overrides?: Partial<Profile>): Promise<Profile>;
  /** A second backend over the same runs directory, as a restarted worker makes it. */
  reopen(): Promise<Backend>;
  close(): Promise<void>;
}

export interface BackendHints {
  /** How long a state change may take to be seen. */
  readonly patienceMs: number;
  /** The shortest time limit that the backend keeps, or null where it is too long for a test. */
  readonly shortestWalltimeS: number | null;
  /** The backend keeps a submission's time to the ms; one that does not is held to INV-13 by tests of its own rows. */
  readonly exactSubmitTimes: boolean;
}

interface Submitted {
  readonly files: JobFiles;
  readonly request: SubmitRequest;
  readonly handle: Handle;
  readonly item: WatchItem;
  readonly target: CancelTarget;
}

/** What the port promises, whatever fills it. */
export function describeBackend(name: string, open: () => Promise<BackendHarness>, hints: BackendHints): void {
  describe(`backend contract: ${name}`, () => {
    let harness: BackendHarness;
    let startedAtMs: number;

    beforeEach(async () => {
      startedAtMs = Date.now() - 1000;
      harness = await open();
    });
    afterEach(async () => {
      await harness.close();
    });

    async function prepare(
      scriptText: string,
      parameters: unknown = {},
      overrides: Partial<Profile> = {},
    ): Promise<Pick<Submitted, 'files' | 'request'>> {
      const token = nextToken();
      const jobId = jobIdOf(token);
      const files = jobFiles(harness.runsDir, jobId);
      const profile = await harness.profile(scriptText, overrides);
      expect(await prepareDirectory(files, { parameters, profile })).toEqual({ kind: 'ok' });
      const request = { jobId, token, profile, directory: files.directory, session: null };
      await harness.backend.prepare(request);
      return { files, request };
    }

    async function submit(
      scriptText: string,
      parameters: unknown = {},
      overrides: Partial<Profile> = {},
    ): Promise<Submitted> {
      const prepared = await prepare(scriptText, parameters, overrides);
      const reply = await harness.backend.submit(prepared.request);
      if (reply.kind !== 'accepted') throw new Error(`not accepted: ${JSON.stringify(reply)}`);
      const { jobId, token } = prepared.request;
      const { handle } = reply;
      return { ...prepared, handle, item: { jobId, token, handle, sinceMs: startedAtMs }, target: { token, handle } };
    }

    async function look(item: WatchItem, backend = harness.backend): Promise<JobAnswer> {
      const { jobs, outage } = await backend.observe([item]);
      expect(outage).toBeNull();
      const answer = jobs.get(item.jobId);
      if (answer === undefined) throw new Error('no answer for the item');
      return answer;
    }

    const until = async (
      item: WatchItem,
      phase: SeenAnswer['state']['phase'],
      backend = harness.backend,
    ): Promise<SeenAnswer> =>
      await eventually(async () => {
        const answer = await look(item, backend);
        if (answer.kind !== 'seen') return null;
        if (answer.state.phase === phase) return answer;
        if (answer.state.phase !== 'Pending' && answer.state.phase !== 'Running') {
          throw new Error(`waited for ${phase}, got ${JSON.stringify(answer)}`);
        }
        return null;
      }, hints.patienceMs);

    const fileAppears = async (path: string): Promise<string> =>
      await eventually(() => (existsSync(path) ? readFileSync(path, 'utf8') : null), hints.patienceMs);

    test('its self test finds it fit', async () => {
      expect(await harness.backend.selfTest()).toMatchObject({ kind: 'fit' });
    });

    test('a prepared job runs to Completed, its result is there, and its directory can go', async () => {
      const job = await submit('#!/bin/sh\ncp "$1" "$2"\n', { message: 'hello' });
      const seen = await until(job.item, 'Completed');
      expect(seen.handle).toEqual(job.handle);
      expect(seen.duplicates).toEqual([]);
      expect(await collectResult(job.files, 1000)).toMatchObject({ kind: 'ok', value: { message: 'hello' } });
      expect(await removeDirectory(job.files)).toEqual({ kind: 'ok' });
      expect(readdirSync(harness.runsDir)).not.toContain(job.request.jobId);
    });

    test('a job is found by its token alone, under the id that its submission gave', async () => {
      const job = await submit('#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n');
      const found = await until({ ...job.item, handle: null }, 'Running');
      // Its submission time may be the backend's own, and coarser.
      expect(found.handle).toMatchObject({ id: job.handle.id, cluster: job.handle.cluster });
      await harness.backend.cancel([job.target]);
      await until(job.item, 'Cancelled');
    });

    test.each([
      ['a status that is not zero', 'exit 3', 'EXIT_NONZERO'],
      ['a signal', 'kill -9 $$', 'SIGNALED'],
    ] as const)('a job that ended by %s (%s) is Failed(%s)', async (_what, command, reason) => {
      const job = await submit(`#!/bin/sh\n${command}\n`);
      expect((await until(job.item, 'Failed')).state).toEqual({ phase: 'Failed', reason });
    });

    test('a job that nobody submitted is absent', async () => {
      const token = nextToken();
      const item = { jobId: jobIdOf(token), token, handle: null, sinceMs: startedAtMs };
      const answer = await eventually(async () => {
        const given = await look(item);
        return given.kind === 'unanswered' ? null : given;
      }, hints.patienceMs);
      expect(answer).toMatchObject({ kind: 'absent', queue: 'absent' });
    });

    if (hints.exactSubmitTimes) {
      test('INV-13: a handle with the right number and another submission time is not this job', async () => {
        const job = await submit('#!/bin/sh\n:\n');
        await until(job.item, 'Completed');
        const other = { ...job.handle, submittedAtMs: job.handle.submittedAtMs - 86_400_000 };
        const answer = await look({ ...job.item, handle: other });
        expect(answer.kind).not.toBe('seen');
      });
    }

    test('INV-8: however often one token is submitted, the work is done once', async () => {
      const prepared = await prepare('#!/bin/sh\necho work >>work\ncp "$1" "$2"\n');
      const { jobId, token } = prepared.request;
      const replies = await Promise.all([1, 2, 3].map(async () => await harness.backend.submit(prepared.request)));
      const [first] = replies.flatMap((reply) => (reply.kind === 'accepted' ? [reply.handle] : []));
      if (first === undefined) throw new Error(`nothing accepted: ${JSON.stringify(replies)}`);
      const item = { jobId, token, handle: null, sinceMs: startedAtMs };
      await fileAppears(prepared.files.done);
      await until(item, 'Completed');
      expect(readFileSync(join(prepared.files.directory, 'work'), 'utf8')).toBe('work\n');
    });

    test('a cancelled job is reported Cancelled, and by then nothing of it works any more', async () => {
      const job = await submit('#!/bin/sh\n(while :; do date +%s%N >>beat; sleep 0.02; done) &\nwait\n');
      const beat = join(job.files.directory, 'beat');
      await fileAppears(beat);
      await until(job.item, 'Running');
      const reply = await harness.backend.cancel([job.target]);
      expect(reply).toEqual({ asked: [job.handle], outage: null });
      await until(job.item, 'Cancelled');
      const sizeBytes = statSync(beat).size;
      for (let round = 0; round < 10; round += 1) await until(job.item, 'Cancelled');
      expect(statSync(beat).size).toBe(sizeBytes);
    });

    test('a stale handle among live ones does not keep them from being cancelled', async () => {
      const over = await submit('#!/bin/sh\n:\n');
      const live = await submit('#!/bin/sh\nsleep 600\n');
      await until(over.item, 'Completed');
      await until(live.item, 'Running');
      const unknown = { ...over.handle, id: over.handle.id.replace(/.$/, (last) => (last === '9' ? '8' : '9')) };
      const reply = await harness.backend.cancel([over.target, { ...over.target, handle: unknown }, live.target]);
      expect(reply.asked).toContainEqual(live.handle);
      await until(live.item, 'Cancelled');
      expect((await until(over.item, 'Completed')).handle).toEqual(over.handle);
    });

    test('a restarted worker sees the same jobs: running, completed, failed', async () => {
      const running = await submit('#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n');
      const completed = await submit('#!/bin/sh\n:\n');
      const failed = await submit('#!/bin/sh\nexit 4\n');
      await until(running.item, 'Running');
      await fileAppears(completed.files.done);
      await fileAppears(failed.files.done);
      await harness.backend.close();
      const next = await harness.reopen();
      expect((await until(running.item, 'Running', next)).handle).toEqual(running.handle);
      await until(completed.item, 'Completed', next);
      await until(failed.item, 'Failed', next);
      await next.cancel([running.target]);
      await until(running.item, 'Cancelled', next);
      await next.close();
    });

    test('asking for many jobs takes no more external calls than asking for one', async () => {
      const jobs = await Promise.all(Array.from({ length: 8 }, async () => await submit('#!/bin/sh\nsleep 600\n')));
      const callsOf = async (items: readonly WatchItem[]): Promise<number> => {
        const total = (): number => Object.values(harness.backend.callCounts()).reduce((sum, count) => sum + count, 0);
        const before = total();
        await harness.backend.observe(items);
        return total() - before;
      };
      await Promise.all(jobs.map(async (job) => await until(job.item, 'Running')));
      const forOne = await callsOf(jobs.slice(0, 1).map((job) => job.item));
      expect(await callsOf(jobs.map((job) => job.item))).toBe(forOne);
      await harness.backend.cancel(jobs.map((job) => job.target));
      await Promise.all(jobs.map(async (job) => await until(job.item, 'Cancelled')));
    });

    test('INV-4: a step runs inside a job that runs, and is refused without one', async () => {
      const job = await submit('#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n');
      await until(job.item, 'Running');
      const { directory } = job.files;
      const step = {
        argv: ['sh', '-c', 'pwd; echo "$GIVEN" >&2; exit 5'],
        directory,
        environment: { GIVEN: `a,b 'c'` },
      };
      expect(await runStep(harness.backend, { ...step, handle: job.handle })).toMatchObject({
        reply: { kind: 'ended', exitCode: 5, signal: null },
        stdout: `${directory}\n`,
        stderr: expect.stringContaining(`a,b 'c'`),
      });
      expect(await runStep(harness.backend, { ...step, handle: null })).toMatchObject({ reply: { kind: 'refused' } });
      await harness.backend.cancel([job.target]);
      await until(job.item, 'Cancelled');
      const late = await runStep(harness.backend, { ...step, handle: job.handle });
      expect(late).toMatchObject({ reply: { kind: 'refused' }, stdout: '' });
    });

    test('a step that is cancelled, or over its time, has ended with its processes; its job and the other step go on', async () => {
      const job = await submit('#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n');
      await until(job.item, 'Running');
      const { directory } = job.files;
      const base = { handle: job.handle, directory };
      const beat = join(directory, 'beat');
      const stop = new AbortController();
      const beating = runStep(harness.backend, {
        ...base,
        argv: ['sh', '-c', 'trap "" TERM; while :; do echo beat >>beat; sleep 0.02; done'],
        signal: stop.signal,
      });
      const other = runStep(harness.backend, { ...base, argv: ['sh', '-c', 'while [ ! -e on ]; do sleep 0.05; done'] });
      await fileAppears(beat);
      stop.abort();
      expect((await beating).reply).toEqual({ kind: 'stopped', by: 'cancel' });
      const sizeBytes = statSync(beat).size;
      const late = await runStep(harness.backend, { ...base, argv: ['sleep', '600'], timeLimitMs: 500 });
      expect(late.reply).toEqual({ kind: 'stopped', by: 'timeLimit' });
      expect(statSync(beat).size).toBe(sizeBytes);
      await until(job.item, 'Running');
      writeFileSync(join(directory, 'on'), '');
      expect((await other).reply).toEqual({ kind: 'ended', exitCode: 0, signal: null });
      await harness.backend.cancel([job.target]);
      await until(job.item, 'Cancelled');
    });

    test('what a step writes comes as it is written, all of it, and bytes as they are', async () => {
      const job = await submit('#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n');
      await until(job.item, 'Running');
      const { directory } = job.files;
      let early = '';
      const chunks: Buffer[] = [];
      const script =
        'echo first; while [ ! -e on ]; do sleep 0.05; done; printf "\\377\\000"; head -c 3000000 /dev/zero';
      const running = harness.backend.runStep(
        stepRequest({
          handle: job.handle,
          directory,
          argv: ['sh', '-c', script],
          onOutput: (_stream, bytes) => {
            early += early === '' ? bytes.toString() : '';
            chunks.push(Buffer.from(bytes));
          },
        }),
      );
      await eventually(() => (early === 'first\n' ? true : null), hints.patienceMs);
      writeFileSync(join(directory, 'on'), '');
      expect(await running).toEqual({ kind: 'ended', exitCode: 0, signal: null });
      const all = Buffer.concat(chunks);
      expect([all.length, all.subarray(6, 8).toString('hex')]).toEqual([3_000_008, 'ff00']);
      await harness.backend.cancel([job.target]);
      await until(job.item, 'Cancelled');
    });

    test('a job sees the variables of its profile and none of ours', async () => {
      process.env['PLANTED_SECRET'] = 'planted';
      try {
        const job = await submit('#!/bin/sh\nenv >"$2.env"\n', {}, { environment: { GIVEN: `a,b 'c' "d"` } });
        await until(job.item, 'Completed');
        const environment = readFileSync(`${job.files.result}.env`, 'utf8').split('\n');
        expect(environment).toContain(`GIVEN=a,b 'c' "d"`);
        expect(environment.filter((line) => line.includes('planted'))).toEqual([]);
      } finally {
        delete process.env['PLANTED_SECRET'];
      }
    });

    test('INV-9: hostile parameters are data to the job', async () => {
      const planted = join(harness.runsDir, 'planted');
      const parameters = { a: `$(touch ${planted})`, b: `\`touch ${planted}\``, c: `'"; touch ${planted} #\n--wrap=x` };
      const job = await submit('#!/bin/sh\ncp "$1" "$2"\n', parameters);
      await until(job.item, 'Completed');
      expect(await collectResult(job.files, 1000)).toMatchObject({ kind: 'ok', value: parameters });
      expect(existsSync(planted)).toBe(false);
    });

    const { shortestWalltimeS } = hints;
    if (shortestWalltimeS !== null) {
      test('a job that runs over its time limit is Failed(TIME_LIMIT_EXCEEDED), though it exits with 0', async () => {
        const script = '#!/bin/sh\ntrap "exit 0" TERM\nwhile :; do sleep 0.05; done\n';
        const job = await submit(script, {}, { walltimeS: shortestWalltimeS });
        const seen = await until(job.item, 'Failed');
        expect(seen.state).toEqual({ phase: 'Failed', reason: 'TIME_LIMIT_EXCEEDED' });
      });
    }
  });
}
