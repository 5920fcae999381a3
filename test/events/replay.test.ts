import { describe, expect, test } from '@jest/globals';
import { readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { EventBus, withBus } from '../../src/events/bus.js';
import { ImportError, type ImportTarget } from '../../src/events/import.js';
import { loadJobs, saveJobs } from '../../src/events/job-checkpoint.js';
import { exportJsonl, importJsonl, JsonlFile } from '../../src/events/jsonl.js';
import { MemoryEventStore } from '../../src/events/memory-store.js';
import { replayJob, replayJobs, replaySteps, type ReplayStep } from '../../src/events/replay.js';
import { eventTypes, isSessionEvent, isTaskEvent } from '../../src/events/schemas.js';
import { openStateDirectory } from '../../src/events/state-directory.js';
import type { EventStore } from '../../src/events/store.js';
import { taskStream } from '../../src/events/streams.js';
import { phaseOf, storeJob, type Job, type StoredJob } from '../../src/machines/job-aggregate.js';
import { isSettled } from '../../src/machines/job-asks.js';
import { foldSession, storeSession, type StoredSession } from '../../src/machines/session-aggregate.js';
import { foldTask, taskPhaseOf } from '../../src/machines/task-aggregate.js';
import type { JobId } from '../../src/machines/vocabulary.js';
import { jobId, taskId } from '../support/ids.js';
import { at } from '../support/job-events.js';
import { all, create, createdJob, LIFE, next, stream, wholeLife } from '../support/logs.js';
import { SeededRandom } from '../support/seeded-random.js';
import { submitted } from '../support/task-events.js';
import { temporaryDirectory } from '../support/temporary-directory.js';

const LOGS = resolve('fixtures/logs');
const FIXTURE = join(LOGS, 'every-event-v1.jsonl');
const TEXT = readFileSync(FIXTURE, 'utf8');
const SESSION_FIXTURE = join(LOGS, 'session-v1.jsonl');
const SESSION_EXPECTED = JSON.parse(readFileSync(join(LOGS, 'session-v1.expected.json'), 'utf8')) as Record<
  string,
  StoredSession
>;
const EXPECTED = JSON.parse(readFileSync(join(LOGS, 'every-event-v1.expected.json'), 'utf8')) as Record<
  string,
  StoredJob
>;

const memory = () => new MemoryEventStore({ writer: 'w', nowMs: () => 1000 });

async function fromFixture(): Promise<MemoryEventStore> {
  const store = memory();
  await importJsonl(store, FIXTURE);
  return store;
}

async function exported(store: EventStore, name?: Parameters<typeof exportJsonl>[1]): Promise<string> {
  let text = '';
  for await (const line of exportJsonl(store, name)) text += line;
  return text;
}

/** Jobs as plain JSON, in the order of their ids: to be compared. */
const plain = (jobs: ReadonlyMap<JobId, Job>) =>
  Object.fromEntries(
    [...jobs].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([id, job]) => [`job/${id}`, storeJob(job)]),
  );

const jobsExpected = Object.fromEntries(Object.entries(EXPECTED).filter(([name]) => name.startsWith('job/')));

async function stepsOf(steps: AsyncIterable<ReplayStep>): Promise<readonly string[]> {
  const seen: string[] = [];
  for await (const { recorded, job } of steps)
    seen.push(`${recorded.version} ${recorded.event.type} → ${phaseOf(job)}`);
  return seen;
}

function file(content: string | Uint8Array): string {
  const path = join(temporaryDirectory(), 'log.jsonl');
  writeFileSync(path, content);
  return path;
}

describe('an old log', () => {
  test('INV-12 still folds to the states that it folded to when it was written', async () => {
    expect(plain(await replayJobs(new JsonlFile(FIXTURE)))).toEqual(jobsExpected);
    const store = await fromFixture();
    for (const [name, expected] of Object.entries(EXPECTED).filter(([key]) => key.startsWith('task/'))) {
      const events = (await store.readStream(name as `task/${string}`)).map(({ event }) => event).filter(isTaskEvent);
      expect({ phase: taskPhaseOf(foldTask(events)) }).toEqual(expected);
    }
  });

  test('INV-12 of a session on a real cluster still folds to the state that it folded to when it was written', () => {
    const events = [...new JsonlFile(SESSION_FIXTURE)].filter(({ stream: name }) => name.startsWith('session/'));
    expect(new Set(events.map(({ stream: name }) => name))).toEqual(new Set(Object.keys(SESSION_EXPECTED)));
    const folded = foldSession(events.map(({ event }) => event).filter(isSessionEvent));
    expect([storeSession(folded)]).toEqual(Object.values(SESSION_EXPECTED));
  });

  test('there is one with every event type that can be written', () => {
    const logs = [FIXTURE, SESSION_FIXTURE].flatMap((path) => [...new JsonlFile(path)]);
    const types = new Set(logs.map(({ event }) => event.type as string));
    expect(eventTypes().filter((type) => !types.has(type))).toEqual([]);
  });
});

describe('JSON Lines', () => {
  test('a log comes out as it went in, byte for byte, through either store', async () => {
    const state = await openStateDirectory(temporaryDirectory(), { mode: 'write', writer: 'w', nowMs: () => 1 });
    const lines = TEXT.split('\n').length - 1;
    for (const store of [state.store, memory()]) {
      expect(await importJsonl(store, FIXTURE)).toEqual({ imported: lines, alreadyThere: 0 });
      expect(await exported(store)).toBe(TEXT);
      expect(await importJsonl(store, FIXTURE)).toEqual({ imported: 0, alreadyThere: lines });
      expect(plain(await replayJobs(store.readAll()))).toEqual(jobsExpected);
    }
    expect(await state.store.checkIntegrity()).toEqual([]);
    await state.close();
  });

  test('one stream comes out alone, and goes in elsewhere', async () => {
    const store = await fromFixture();
    const text = await exported(store, stream(2));
    expect(text.trim().split('\n')).toEqual(
      TEXT.split('\n').filter((line) => line.includes(`"stream":"${stream(2)}"`)),
    );
    const other = memory();
    await importJsonl(other, file(text));
    expect(plain(await replayJobs(other.readAll()))).toEqual({ [stream(2)]: EXPECTED[stream(2)] });
  });

  test('an event longer than what is read at once, in letters of several bytes, comes through whole', async () => {
    const store = memory();
    const payload = { text: 'aé→😀'.repeat(100_000) };
    await store.append({ stream: taskStream(taskId(1)), expectedVersion: 0, events: [submitted({ payload })] });
    await store.append(create(2));
    const other = memory();
    await importJsonl(other, file(await exported(store)));
    expect(await all(other)).toEqual(await all(store));
  });

  const line = (over: object) => `${JSON.stringify({ ...JSON.parse(TEXT.slice(0, TEXT.indexOf('\n'))), ...over })}\n`;
  const good = line({});

  test.each<[string, string | Uint8Array, number, RegExp]>([
    ['is no JSON', `${good}{"position":2,\n`, 2, /no JSON/],
    ['is empty', `${good}\n${good}`, 2, /no JSON/],
    ['is no recorded event', '[]\n', 1, /no recorded event/],
    ['has a key too many', line({ note: 1 }), 1, /no recorded event.*note/s],
    ['has no writer', line({ writer: undefined }), 1, /writer/],
    ['has a stream that is none', line({ stream: 'job/1' }), 1, /is no stream/],
    ['has an event of another kind', line({ stream: stream(1) }), 1, /another kind of stream/],
    [
      'has an event that its version does not explain',
      line({ event: { type: 'oddity.seen', v: 1, atMs: 0 } }),
      1,
      /text/,
    ],
    ['has an event of a newer release', line({ event: { type: 'oddity.seen', v: 9, atMs: 0 } }), 1, /newer/],
    ['leaves out a version', `${good}${line({ version: 3 })}`, 2, /goes from version 1 to 3/],
    ['comes twice', `${good}${good}`, 2, /from version 1 to 1/],
    ['is not in UTF-8', Buffer.concat([Buffer.from(good), Buffer.from([0x7b, 0xe9, 0x7d, 0x0a])]), 2, /utf-8/],
    ['has NULs', `${good}\u0000\u0000\n`, 2, /no JSON/],
  ])(
    'a line that %s refuses the file by line number, and nothing of it is written',
    async (_what, content, number, why) => {
      const state = await openStateDirectory(temporaryDirectory(), { mode: 'write', writer: 'w', nowMs: () => 1 });
      const path = file(content);
      for (const target of [state.store, memory()]) {
        const refusal = importJsonl(target, path);
        await expect(refusal).rejects.toThrow(ImportError);
        await expect(refusal).rejects.toThrow(why);
        await expect(refusal).rejects.toThrow(`${path}:${number}: `);
        expect(await target.lastPosition()).toBe(0);
      }
      await state.store.append(create(1));
      await state.close();
    },
  );

  test('a file that is missing, a directory, or no text at all is refused by name', async () => {
    const directory = temporaryDirectory();
    const endless = join(directory, 'endless');
    writeFileSync(endless, '');
    truncateSync(endless, 70 * 1024 * 1024);
    for (const path of [join(directory, 'none'), directory, endless])
      await expect(importJsonl(memory(), path)).rejects.toMatchObject({
        name: 'ImportError',
        message: expect.stringContaining(path),
      });
  });

  test('a refusal by the log names file and line as well', async () => {
    const store = memory();
    await store.append(wholeLife(1));
    const path = file(TEXT);
    const before = await all(store);
    await expect(importJsonl(store, path)).rejects.toThrow(`${path}:2: version 1 of ${stream(1)} is another event`);
    expect(await all(store)).toEqual(before);
  });

  test('INV-12 a file that was cut anywhere is taken up to a whole line, or refused at the line that is cut', async () => {
    const bytes = Buffer.from(TEXT);
    const whole = await all(await fromFixture());
    const random = new SeededRandom(3);
    for (let n = 0; n < 60; n += 1) {
      const cut = n < 20 ? TEXT.indexOf('\n', random.int(0, bytes.length - 1)) + (n % 3) : random.int(0, bytes.length);
      const head = bytes.subarray(0, cut).toString();
      const lines = head.split('\n');
      const store: MemoryEventStore & ImportTarget = memory();
      const path = file(head);
      const isWhole = (lines.at(-1) ?? '') === '' || TEXT.charAt(cut) === '\n';
      if (isWhole) {
        await importJsonl(store, path);
        expect(await all(store)).toEqual(whole.slice(0, lines.filter((text) => text !== '').length));
      } else {
        await expect(importJsonl(store, path)).rejects.toThrow(`${path}:${lines.length}: no JSON`);
        expect(await all(store)).toEqual([]);
      }
    }
  });
});

describe('replay', () => {
  test('shows a job after each of its events, or up to one of them', async () => {
    const store = memory();
    await store.append(wholeLife(1));
    const whole = [
      '1 job.created → Submitting',
      '2 submission.started → Submitting',
      '3 submission.accepted → Pending',
      '4 job.observed → Pending',
      '5 job.observed → Running',
      '6 completion.reported → Running',
      '7 result.collected → Completed',
      '8 outcome.delivered → Completed',
      '9 directory.removed → Completed',
    ];
    expect(await stepsOf(replayJob(store, jobId(1)))).toEqual(whole);
    expect(await stepsOf(replayJob(store, jobId(1), { until: 3 }))).toEqual(whole.slice(0, 3));
    expect(await stepsOf(replayJob(store, jobId(1), { until: 99 }))).toEqual(whole);
    expect(await stepsOf(replayJob(store, jobId(2)))).toEqual([]);
    expect(await stepsOf(replaySteps(await all(store)))).toEqual(whole);
  });

  test('INV-12 an event that its state cannot take names stream, version and position, wherever it is met', async () => {
    const store = memory();
    await store.append(create(1));
    await store.append(create(2));
    await store.append(next(2, 1, at(1).started(), at(2).collected()));
    const told = expect.objectContaining({
      name: 'IllegalEventError',
      message: expect.stringMatching(`${stream(2)}, version 3, position 4 .*result.collected is illegal in Submitting`),
    });
    await expect(replayJobs(store.readAll())).rejects.toEqual(told);
    await expect(stepsOf(replayJob(store, jobId(2)))).rejects.toEqual(told);
    await expect(loadJobs(store, 'jobs')).rejects.toEqual(told);
  });

  test('INV-12 a missing event, a missing beginning and a foreign event are errors too', async () => {
    const store = memory();
    await store.append(wholeLife(1));
    const records = await all(store);
    await expect(replayJobs(records.filter(({ version }) => version !== 5))).rejects.toThrow(
      /version 6, position 6 .*follows version 4: events are missing/,
    );
    await expect(replayJobs(records.slice(3))).rejects.toThrow(/version 4, .*follows version 0/);
    const foreign = { ...records[1], event: submitted() } as (typeof records)[number];
    await expect(stepsOf(replaySteps([...records.slice(0, 1), foreign]))).rejects.toThrow(
      /task\.submitted is no event of a job/,
    );
    const [first] = records;
    if (first === undefined) throw new Error('a log has its first event');
    const headless = { ...first, event: at(1).started() };
    await expect(replayJobs([headless])).rejects.toThrow(/version 1, position 1 .*before job\.created/);
  });
});

describe('a restart', () => {
  const unsettled = Object.fromEntries(
    Object.entries(jobsExpected).filter(([name]) => name !== stream(1) && name !== stream(3)),
  );

  test('finds the jobs that are not settled, with what is known of them', async () => {
    const { jobs, position } = await loadJobs(await fromFixture(), 'jobs');
    expect(position).toBe(102);
    expect(plain(jobs)).toEqual(unsettled);
  });

  test('INV-12 from a checkpoint anywhere in the log, and the events after it, comes to the same jobs', async () => {
    const store = await fromFixture();
    for (let position = 0; position <= 102; position += 1) {
      const then = await loadJobs(store.cutAfter(position), 'jobs');
      expect(then.position).toBe(position);
      await saveJobs(store, 'jobs', then.jobs.values(), position);
      // The checkpoint is really what it starts from.
      const read: number[] = [];
      const watched: EventStore = {
        ...withBus(store, new EventBus(() => undefined)),
        readAll: (after = 0) => {
          read.push(after);
          return store.readAll(after);
        },
      };
      const now = await loadJobs(watched, 'jobs');
      expect([plain(now.jobs), now.position, read]).toEqual([unsettled, 102, [position]]);
    }
  });

  test('keeps settled jobs out of a checkpoint, even if it is given them', async () => {
    const store = await fromFixture();
    const everything = await replayJobs(store.readAll());
    expect([...everything.values()].filter(isSettled)).toHaveLength(2);
    await saveJobs(store, 'jobs', everything.values(), 102);
    expect(plain((await loadJobs(store, 'jobs')).jobs)).toEqual(unsettled);
    expect(JSON.stringify(await store.loadCheckpoint('jobs'))).not.toContain(jobId(1));
  });

  test('INV-6 takes what still arrives for a job that is settled and out of memory', async () => {
    const store = memory();
    await store.append(wholeLife(1));
    await saveJobs(store, 'jobs', [], 9);
    await store.append(next(1, 9, at(70).lateObserved(), at(80).duplicateFound()));
    await store.append(create(2));
    const fromCheckpoint = await loadJobs(store, 'jobs');
    const fromNothing = await loadJobs(store, 'none');
    expect(plain(fromCheckpoint.jobs)).toEqual(plain(fromNothing.jobs));
    // The duplicate has to be ended: the job is back.
    expect([...fromCheckpoint.jobs.keys()].toSorted()).toEqual([jobId(1), jobId(2)]);
    expect(fromCheckpoint.jobs.get(jobId(1))?.version).toBe(11);
  });

  test.each<[string, unknown, number]>([
    ['made by another release', { shape: 'other', policies: [], jobs: [] }, 5],
    ['in another form', [], 5],
    ['that is nothing', null, 5],
  ])('leaves a checkpoint %s aside and folds everything', async (_what, data, position) => {
    const store = await fromFixture();
    await store.saveCheckpoint('jobs', { position, data });
    expect(plain((await loadJobs(store, 'jobs')).jobs)).toEqual(unsettled);
  });

  test('leaves a checkpoint aside that is ahead of its log', async () => {
    const store = await fromFixture();
    await saveJobs(store, 'jobs', [], 103);
    expect(plain((await loadJobs(store, 'jobs')).jobs)).toEqual(unsettled);
  });

  test('gives back the very job that was saved, whatever has happened to it', async () => {
    const store = memory();
    const jobs: Job[] = [];
    for (let length = 0; length < LIFE.length; length += 1) {
      const n = length + 1;
      await store.append({ stream: stream(n), expectedVersion: 0, events: [createdJob(n), ...LIFE.slice(0, length)] });
      const job = (await replayJobs(await store.readStream(stream(n)))).get(jobId(n));
      if (job !== undefined) jobs.push(job);
    }
    await saveJobs(store, 'jobs', jobs, await store.lastPosition());
    const { jobs: loaded } = await loadJobs(store, 'jobs');
    expect([...loaded.values()].map(storeJob)).toEqual(jobs.map(storeJob));
    expect([...loaded.values()].map(phaseOf)).toEqual(jobs.map(phaseOf));
  });
});
