import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { Backend } from '../../src/backend.js';
import { readBootId, readProcess } from '../../src/local/proc.js';
import { freshRunsDirectory } from '../support/job-directory.js';
import {
  briefly,
  lookAtJob,
  openLocal,
  prepareLocal,
  submitLocal,
  untilBriefly,
  type LocalJob,
} from '../support/local-jobs.js';
import { ManualClock } from '../support/manual-clock.js';
import { eventually } from '../support/wait.js';
import { runStep } from '../support/steps.js';

// Real processes on a busy machine: the bound is for a hang, not for speed.
jest.setTimeout(60_000);

const WAITS_FOR_GO = '#!/bin/sh\n: >started\nwhile [ ! -e go ]; do sleep 0.02; done\n';
const IGNORES_TERM = '#!/bin/sh\ntrap "" TERM\n: >started\nwhile :; do date +%s%N >>beat; sleep 0.02; done\n';

let runsDir: string;
let backend: Backend;

beforeEach(async () => {
  runsDir = await freshRunsDirectory();
  backend = await openLocal(runsDir);
});
afterEach(async () => {
  await backend.close();
});

const inside = (job: Pick<LocalJob, 'files'>, name: string): string => join(job.files.directory, name);
const appears = async (path: string): Promise<true> => await eventually(() => (existsSync(path) ? true : null));
const started = async (job: Pick<LocalJob, 'files'>): Promise<true> => await appears(inside(job, 'started'));
const release = (job: Pick<LocalJob, 'files'>): void => writeFileSync(inside(job, 'go'), '');
const registryFile = (name: string): string => join(runsDir, '.local', hostname(), name);

/** The pid of a job's own script, from its claim. */
function scriptPid(job: Pick<LocalJob, 'files'>): number {
  const [, pid] = readFileSync(job.files.claim, 'utf8').split('.');
  return Number(pid);
}

/** Fails if the file still grows during some twenty looks at the job. */
async function expectSilence(path: string, job: LocalJob, from = backend): Promise<void> {
  const { size } = statSync(path);
  for (let look = 0; look < 20; look += 1) await lookAtJob(from, job.item);
  expect(statSync(path).size).toBe(size);
}

test('jobs over the cap wait in the order of their submission, also across a restart, and each runs once', async () => {
  const narrow = await openLocal(runsDir, { maxRunning: 1 });
  const order = join(runsDir, 'order');
  const jobs: LocalJob[] = [];
  for (const name of ['a', 'b', 'c']) {
    const script = `#!/bin/sh\necho ${name} >>'${order}'\n: >started\nwhile [ ! -e go ]; do sleep 0.02; done\n`;
    jobs.push(await submitLocal(narrow, runsDir, script));
  }
  const [first, second, third] = jobs;
  if (first === undefined || second === undefined || third === undefined) throw new Error('three jobs');
  await started(first);
  const waiting = await lookAtJob(narrow, second.item);
  expect(waiting).toMatchObject({ kind: 'seen', state: { phase: 'Pending', waiting: 'queued' } });
  expect(narrow.callCounts()).toMatchObject({ start: 1 });
  await narrow.close();

  const again = await openLocal(runsDir, { maxRunning: 1 });
  expect(await briefly(again, third.item)).toBe('Pending');
  release(first);
  await untilBriefly(again, first.item, 'Completed');
  await untilBriefly(again, second.item, 'Running');
  expect(await briefly(again, third.item)).toBe('Pending');
  release(second);
  release(third);
  await untilBriefly(again, third.item, 'Completed');
  expect(readFileSync(order, 'utf8')).toBe('a\nb\nc\n');
  await again.close();
});

test('INV-8: two workers that submit one token at once get one handle, and the work is done once', async () => {
  const other = await openLocal(runsDir);
  const job = await prepareLocal(backend, runsDir, '#!/bin/sh\necho work >>work\n');
  const replies = await Promise.all(
    [backend, other, backend, other].map(async (each) => await each.submit(job.request)),
  );
  expect(new Set(replies.map((reply) => JSON.stringify(reply.kind === 'accepted' && reply.handle))).size).toBe(1);
  await untilBriefly(other, job.item, 'Completed');
  expect(await briefly(backend, job.item)).toBe('Completed');
  expect(readFileSync(inside(job, 'work'), 'utf8')).toBe('work\n');
  await other.close();
});

test('INV-8: an attempt has not ended while its submission is still being written', async () => {
  const job = await prepareLocal(backend, runsDir, '#!/bin/sh\n');
  const { token } = job.request;
  const submission = backend.submit(job.request);
  expect(await backend.endAttempt(token)).toMatchObject({ kind: 'alive' });
  expect(await submission).toMatchObject({ kind: 'accepted' });
  expect(await backend.endAttempt(token)).toMatchObject({ kind: 'ended' });
  await untilBriefly(backend, job.item, 'Completed');
});

test('INV-8: a token that another job has is refused', async () => {
  const job = await submitLocal(backend, runsDir, '#!/bin/sh\n');
  const other = await prepareLocal(backend, runsDir, '#!/bin/sh\n: >ran\n');
  const reply = await backend.submit({ ...other.request, token: job.request.token });
  expect(reply).toMatchObject({ kind: 'refused', reason: 'BACKEND_REJECTED' });
  await untilBriefly(backend, job.item, 'Completed');
  expect(existsSync(inside(other, 'ran'))).toBe(false);
});

test('INV-11: a job whose script was killed is absent, never Completed, and what it left is ended', async () => {
  const job = await submitLocal(backend, runsDir, IGNORES_TERM);
  await started(job);
  process.kill(scriptPid(job), 'SIGKILL');
  await untilBriefly(backend, job.item, 'absent');
  await expectSilence(inside(job, 'beat'), job);
  expect(await lookAtJob(backend, job.item)).toMatchObject({ queue: 'absent', accounting: 'notKept' });
});

test('INV-11: a job whose directory vanished is absent, and its processes are ended', async () => {
  const beat = join(runsDir, 'beat');
  const job = await submitLocal(backend, runsDir, `#!/bin/sh\nwhile :; do echo x >>'${beat}'; sleep 0.02; done\n`);
  await appears(beat);
  rmSync(job.files.directory, { recursive: true });
  await untilBriefly(backend, job.item, 'absent');
  await expectSilence(beat, job);
});

test('INV-13: a pid counts only with its boot and its start time', async () => {
  const narrow = await openLocal(runsDir, { maxRunning: 0 });
  const mine = await readProcess(process.pid);
  const bootId = await readBootId();
  const ticks = String(mine?.startTicks);
  const pid = String(process.pid);
  for (const [identity, wanted] of [
    [`${bootId}.${pid}.${ticks}`, 'Running'],
    [`${bootId}.${pid}.1`, 'absent'],
    [`${'0'.repeat(8)}${bootId.slice(8)}.${pid}.${ticks}`, 'absent'],
    ['nobody', 'absent'],
  ] as const) {
    const job = await submitLocal(narrow, runsDir, '#!/bin/sh\n');
    writeFileSync(job.files.claim, `${identity}\n`);
    expect([identity, await briefly(narrow, job.item)]).toEqual([identity, wanted]);
  }
  await narrow.close();
});

test('the time limit holds without a worker, and against a job that ignores SIGTERM', async () => {
  const job = await submitLocal(backend, runsDir, IGNORES_TERM, { walltimeS: 1 });
  await started(job);
  const pid = scriptPid(job);
  await backend.close();
  await eventually(async () => ((await readProcess(pid)) === null ? true : null));
  backend = await openLocal(runsDir);
  expect(await briefly(backend, job.item)).toBe('Failed TIME_LIMIT_EXCEEDED');
  await expectSilence(inside(job, 'beat'), job);
});

test('a job that ended leaves neither background processes nor its time limit behind, though no worker looks', async () => {
  const job = await submitLocal(backend, runsDir, '#!/bin/sh\nsleep 500 &\n', { walltimeS: 400 });
  await appears(job.files.done);
  await eventually(() => (processesWith(job.request.jobId).length === 0 ? true : null));
});

test('a job that ignores SIGTERM is killed after the grace, also by a worker that started since', async () => {
  const job = await submitLocal(backend, runsDir, IGNORES_TERM);
  await started(job);
  await backend.cancel([job.target]);
  expect(await briefly(backend, job.item)).toBe('Running');
  await backend.close();
  backend = await openLocal(runsDir);
  await untilBriefly(backend, job.item, 'Cancelled USER_CANCELLED');
  await expectSilence(inside(job, 'beat'), job);
});

test('a job cancelled while it waits never runs', async () => {
  const narrow = await openLocal(runsDir, { maxRunning: 1 });
  const first = await submitLocal(narrow, runsDir, WAITS_FOR_GO);
  const second = await submitLocal(narrow, runsDir, '#!/bin/sh\n: >started\n');
  const third = await submitLocal(narrow, runsDir, '#!/bin/sh\n');
  await started(first);
  expect(await narrow.cancel([second.target])).toEqual({ asked: [second.handle], outage: null });
  expect(await briefly(narrow, second.item)).toBe('Cancelled USER_CANCELLED');
  release(first);
  await untilBriefly(narrow, third.item, 'Completed');
  expect(await briefly(narrow, second.item)).toBe('Cancelled USER_CANCELLED');
  expect(existsSync(inside(second, 'started'))).toBe(false);
  expect(narrow.callCounts()).toMatchObject({ start: 2 });
  await narrow.close();
});

test('a job that completes in spite of a cancel has completed', async () => {
  const script = '#!/bin/sh\ntrap "exit 0" TERM\n: >started\nwhile :; do sleep 0.02; done\n';
  const job = await submitLocal(backend, runsDir, script);
  await started(job);
  await backend.cancel([job.target]);
  await untilBriefly(backend, job.item, 'Completed');
});

test('INV-3: a job has not ended before the processes that left its session have', async () => {
  const beat = (ending: string): string =>
    `#!/bin/sh\nsetsid sh -c 'trap "" TERM; while :; do date +%s%N >>beat; sleep 0.02; done' &\n` +
    `while [ ! -e beat ]; do sleep 0.02; done\n: >started\n${ending}\n`;
  const completes = await submitLocal(backend, runsDir, beat(''));
  await untilBriefly(backend, completes.item, 'Completed');
  await expectSilence(inside(completes, 'beat'), completes);
  const cancelled = await submitLocal(backend, runsDir, beat('sleep 600'));
  await started(cancelled);
  await backend.cancel([cancelled.target]);
  await untilBriefly(backend, cancelled.item, 'Cancelled USER_CANCELLED');
  await expectSilence(inside(cancelled, 'beat'), cancelled);
});

test('INV-10: while the registry cannot be read nothing is said about any job', async () => {
  const job = await submitLocal(backend, runsDir, '#!/bin/sh\n');
  await untilBriefly(backend, job.item, 'Completed');
  const local = join(runsDir, '.local');
  renameSync(local, `${local}.away`);
  const away = await backend.observe([job.item]);
  expect([...away.jobs]).toEqual([]);
  expect(away.outage).toMatchObject({ kind: 'unreachable' });
  expect(away.queueOutage).toEqual(away.outage);
  const unsent = await prepareLocal(backend, runsDir, '#!/bin/sh\n');
  expect(await backend.submit(unsent.request)).toMatchObject({ kind: 'deferred', limit: 'ENOENT' });
  renameSync(`${local}.away`, local);
  expect(await briefly(backend, job.item)).toBe('Completed');
  expect(await briefly(backend, unsent.item)).toBe('absent');
});

test('an entry that cannot be read is unanswered and does not spoil its neighbours', async () => {
  const broken = await submitLocal(backend, runsDir, '#!/bin/sh\n');
  await untilBriefly(backend, broken.item, 'Completed');
  writeFileSync(registryFile(`${broken.request.token}.json`), '{"v":1');
  const other = await openLocal(runsDir);
  const job = await submitLocal(other, runsDir, '#!/bin/sh\n');
  await untilBriefly(other, job.item, 'Completed');
  expect(await lookAtJob(other, broken.item)).toMatchObject({ kind: 'unanswered', queueAbsent: false });
  await other.close();
});

test('a job whose script ends before it has the claim is Failed(BOOTSTRAP_FAILED)', async () => {
  const job = await prepareLocal(backend, runsDir, '#!/bin/sh\n');
  writeFileSync(job.files.script, 'exit 121\n');
  await backend.submit(job.request);
  await untilBriefly(backend, job.item, 'Failed BOOTSTRAP_FAILED');
  const unstartable = await submitLocal(backend, runsDir, '#!/no/such/interpreter\n');
  await untilBriefly(backend, unstartable.item, 'Failed BOOTSTRAP_FAILED');
});

test('a profile that needs more than this machine, and a directory that is not prepared, are refused', async () => {
  const wide = await prepareLocal(backend, runsDir, '#!/bin/sh\n', { nodes: 2 });
  expect(await backend.submit(wide.request)).toMatchObject({ kind: 'refused', reason: 'INVALID_SPEC' });
  const bare = await prepareLocal(backend, runsDir, '#!/bin/sh\n');
  rmSync(bare.files.script);
  expect(await backend.submit(bare.request)).toMatchObject({ kind: 'refused', reason: 'BACKEND_REJECTED' });
  expect(await briefly(backend, bare.item)).toBe('absent');
});

test('a step ends with its time limit, and all that it wrote comes through, though a child keeps the pipe open', async () => {
  const job = await submitLocal(backend, runsDir, WAITS_FOR_GO);
  await untilBriefly(backend, job.item, 'Running');
  const { handle } = job;
  const { directory } = job.files;
  const run = async (script: string, timeLimitMs: number) =>
    await runStep(backend, { handle, directory, argv: ['sh', '-c', script], timeLimitMs });
  expect((await run('sleep 600 & sleep 600', 200)).reply).toEqual({ kind: 'stopped', by: 'timeLimit' });
  expect(await run('sleep 600 & echo out; echo err >&2', 20_000)).toEqual({
    reply: { kind: 'ended', exitCode: 0, signal: null },
    stdout: 'out\n',
    stderr: 'err\n',
  });
  const long = await run('i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done', 20_000);
  expect(long.stdout).toBe('0123456789\n'.repeat(20_000));
  expect((await run('kill -9 $$', 20_000)).reply).toEqual({ kind: 'ended', exitCode: null, signal: 'SIGKILL' });
  const missing = await runStep(backend, { handle, directory, argv: ['/no/such/command'] });
  expect(missing.reply).toMatchObject({ kind: 'refused' });
  release(job);
  await untilBriefly(backend, job.item, 'Completed');
  expect(processesWith(job.request.jobId)).toEqual([]);
});

test('a worker on another host neither starts nor sees the jobs of this one', async () => {
  const narrow = await openLocal(runsDir, { maxRunning: 0 });
  const job = await submitLocal(narrow, runsDir, '#!/bin/sh\n: >started\n');
  const elsewhere = await openLocal(runsDir, { host: 'elsewhere' });
  expect(elsewhere.site).not.toBe(narrow.site);
  expect(await briefly(elsewhere, job.item)).toBe('absent');
  expect(elsewhere.callCounts()).toMatchObject({ start: 0 });
  expect(await briefly(narrow, job.item)).toBe('Pending');
  await narrow.close();
  await elsewhere.close();
});

test('the registry forgets a job an hour after its directory is gone, and not before', async () => {
  const clock = new ManualClock();
  const timed = await openLocal(runsDir, { clock });
  const job = await submitLocal(timed, runsDir, '#!/bin/sh\n');
  const kept = await submitLocal(timed, runsDir, '#!/bin/sh\n');
  await untilBriefly(timed, job.item, 'Completed');
  await untilBriefly(timed, kept.item, 'Completed');
  rmSync(job.files.directory, { recursive: true });
  await clock.advance(1_800_000);
  await lookAtJob(timed, kept.item);
  expect(existsSync(registryFile(`${job.request.token}.json`))).toBe(true);
  await clock.advance(1_900_000);
  await lookAtJob(timed, kept.item);
  expect(readdirSync(registryFile('.'))).toEqual([`${kept.request.token}.json`]);
  await timed.close();
});

test('the self test says what is missing', async () => {
  const bare = await openLocal(runsDir, { environment: { PATH: '/nowhere' } });
  expect(await bare.selfTest()).toMatchObject({
    kind: 'unfit',
    problems: [expect.stringContaining('sh cannot be started')],
  });
  expect(readdirSync(runsDir).sort()).toEqual(['.local', '.wake']);
  await bare.close();
});

test('the environment of a job is built: PATH and the like, its profile, its own, and nothing else', async () => {
  const job = await submitLocal(backend, runsDir, '#!/bin/sh\nenv | cut -d= -f1 | sort >names\n', {
    environment: { GIVEN: 'x' },
  });
  await untilBriefly(backend, job.item, 'Completed');
  const names = readFileSync(inside(job, 'names'), 'utf8').trim().split('\n');
  const allowed =
    /^(PATH|HOME|USER|LOGNAME|LANG|TZ|TMPDIR|GIVEN|OPEN_COMPUTE_(INPUT|RESULT|DIRECTORY|JOB_ID)|PWD|OLDPWD|SHLVL|_)$/;
  expect(names.filter((name) => !allowed.test(name))).toEqual([]);
  expect(names).toContain('GIVEN');
});

/** Pids whose environment has this text. */
function processesWith(text: string): readonly string[] {
  return readdirSync('/proc').filter((name) => {
    if (!/^\d+$/.test(name) || name === String(process.pid)) return false;
    try {
      return readFileSync(`/proc/${name}/environ`, 'latin1').includes(text);
    } catch {
      return false; // gone in the meantime
    }
  });
}
