import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { ImportTarget } from '../../src/events/import.js';
import { InvalidEventError, StoreError, VersionConflictError, type EventStore } from '../../src/events/store.js';
import { backendStream } from '../../src/events/streams.js';
import { jobId, token } from '../support/ids.js';
import { at, created } from '../support/job-events.js';
import { all, create, createdJob, LIFE, next, stream, wholeLife } from '../support/logs.js';
import { submitted } from '../support/task-events.js';

/** A store under test. Its writer is `writer-1`, its clock stands at 1000. */
export interface StoreUnderTest {
  readonly store: EventStore & ImportTarget;
  /** Ends the user of the store and gives the log to the next one. */
  reopen(): Promise<EventStore>;
  close(): Promise<void>;
}

/** What every event store does, whatever it keeps the log in. */
export function describeEventStore(name: string, make: () => Promise<StoreUnderTest>): void {
  describe(`the event store ${name}`, () => {
    let subject: StoreUnderTest;
    let store: StoreUnderTest['store'];

    beforeEach(async () => {
      subject = await make();
      store = subject.store;
    });
    afterEach(() => subject.close());

    test('keeps what was appended, with stream, version, position, time and writer', async () => {
      const recorded = await store.append(create(1));
      expect(recorded).toEqual([
        { position: 1, stream: stream(1), version: 1, recordedAtMs: 1000, writer: 'writer-1', event: createdJob(1) },
      ]);
      expect(await store.readStream(stream(1))).toEqual(recorded);
      expect(await all(store)).toEqual(recorded);
    });

    test('numbers positions from 1 without gaps, over all streams, in the order of the appends', async () => {
      await store.append(create(1));
      await store.append(create(2));
      await expect(store.append(create(1))).rejects.toThrow(VersionConflictError);
      await store.append(next(1, 1, at(1).started(), at(2).accepted()));
      const records = await all(store);
      expect(records.map(({ position }) => position)).toEqual([1, 2, 3, 4]);
      expect(records.map((record) => [record.stream, record.version])).toEqual([
        [stream(1), 1],
        [stream(2), 1],
        [stream(1), 2],
        [stream(1), 3],
      ]);
      expect(await store.lastPosition()).toBe(4);
    });

    test('an empty log has no events and is at position 0', async () => {
      expect(await all(store)).toEqual([]);
      expect(await store.lastPosition()).toBe(0);
      expect(await store.readStream(stream(9))).toEqual([]);
    });

    test.each([0, 2, 7])(
      'INV-12 refuses an append that expects version %i of a stream at version 1',
      async (version) => {
        await store.append(create(1));
        const append = store.append(next(1, version, at(1).started()));
        await expect(append).rejects.toThrow(new VersionConflictError(stream(1), version, 1));
        await expect(append).rejects.toMatchObject({ stream: stream(1), expectedVersion: version, actualVersion: 1 });
        expect(await store.lastPosition()).toBe(1);
      },
    );

    test('INV-12 of two appends that expect the same version in the same moment, the first one wins', async () => {
      await store.append(create(1));
      const results = await Promise.allSettled([
        store.append(next(1, 1, at(1).started())),
        store.append(next(1, 1, at(2).cancelRequested())),
        store.append(create(2)),
      ]);
      expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
      expect((await store.readStream(stream(1))).map(({ event }) => event)).toEqual([createdJob(1), at(1).started()]);
      expect((await all(store)).map(({ position }) => position)).toEqual([1, 2, 3]);
    });

    test('a hundred appends in one moment are all kept, in their order', async () => {
      const numbers = Array.from({ length: 100 }, (_, index) => index + 1);
      await Promise.all(numbers.map((n) => store.append(create(n))));
      expect((await all(store)).map((record) => record.stream)).toEqual(numbers.map((n) => stream(n)));
    });

    test('writes several streams together, or none of them', async () => {
      await store.append(create(1));
      await store.appendAll([create(2), next(1, 1, at(1).started())]);
      expect(await store.lastPosition()).toBe(3);
      const append = store.appendAll([create(3), next(1, 1, at(2).cancelRequested()), create(4)]);
      await expect(append).rejects.toThrow(VersionConflictError);
      expect(await store.lastPosition()).toBe(3);
      expect(await store.readStream(stream(3))).toEqual([]);
    });

    test('writes one stream twice in one call, if the second part expects what the first one leaves', async () => {
      await store.appendAll([create(1), next(1, 1, at(1).started())]);
      await expect(store.appendAll([create(2), create(2)])).rejects.toThrow(VersionConflictError);
      expect(await store.lastPosition()).toBe(2);
    });

    test('an append without events writes nothing, and still checks the version', async () => {
      expect(await store.append(next(1, 0))).toEqual([]);
      await expect(store.append(next(1, 3))).rejects.toThrow(VersionConflictError);
      expect(await store.lastPosition()).toBe(0);
    });

    test('reads a stream after a version, and the log after a position', async () => {
      await store.append(wholeLife(1));
      expect((await store.readStream(stream(1), 7)).map(({ version }) => version)).toEqual([8, 9]);
      expect((await all(store, 7)).map(({ position }) => position)).toEqual([8, 9]);
      expect(await store.readStream(stream(1), 9)).toEqual([]);
      expect(await all(store, 9)).toEqual([]);
    });

    test('reads on while others append, up to the end that it finds', async () => {
      for (let n = 1; n <= 300; n += 1) await store.append(create(n));
      const seen: number[] = [];
      for await (const { position } of store.readAll()) {
        seen.push(position);
        if (position === 1) await store.append(create(301));
      }
      expect(seen).toEqual(Array.from({ length: 301 }, (_, index) => index + 1));
    });

    test('a reader who stops early leaves the store as usable as before', async () => {
      for (let n = 1; n <= 3; n += 1) await store.append(create(n));
      for await (const { position } of store.readAll()) if (position === 2) break;
      await store.append(create(4));
      expect(await store.lastPosition()).toBe(4);
    });

    test.each([
      ['an event of no known type', { type: 'job.imagined', v: 1, atMs: 0 }],
      ['a field that the event does not have', { ...at(1).started(), colour: 'red' }],
      ['a version that is not written today', { ...at(1).started(), v: 2 }],
      ['a text that is too long', { ...at(1).rejected(), detail: 'x'.repeat(4001) }],
      ['an event of another kind of stream', submitted()],
      ['the beginning of another stream', createdJob(2)],
      ['what is not JSON', created({ parameters: 1n })],
      ['parameters that JSON would leave out', created({ parameters: undefined })],
    ])('refuses %s, and writes nothing of that append', async (_what, event) => {
      const append = store.append({ stream: stream(1), expectedVersion: 0, events: [createdJob(1), event as never] });
      await expect(append).rejects.toThrow(InvalidEventError);
      await expect(append).rejects.toThrow(stream(1));
      expect(await store.lastPosition()).toBe(0);
    });

    test('refuses a stream whose name is none', async () => {
      const names = ['job/1', 'jobs/x', `job/${jobId()} `, 'backend/a b', 'backend/', '', `job/${'x'.repeat(10_000)}`];
      for (const name of names) {
        const append = store.append({ stream: name as never, expectedVersion: 0, events: [] });
        await expect(append).rejects.toThrow(/is no stream/);
      }
    });

    test('gives out what was stored, not what the writer still holds', async () => {
      const parameters = { list: [1, 2] };
      await store.append({ stream: stream(1), expectedVersion: 0, events: [created({ parameters })] });
      parameters.list.push(3);
      const [record] = await store.readStream(stream(1));
      expect(record?.event).toMatchObject({ parameters: { list: [1, 2] } });
    });

    test('keeps every character: NUL, newlines, quotes, lone surrogates, emoji', async () => {
      const text = '\u0000\n\r"\\\u2028\ud83d\ude00 \ud800 é';
      await store.append({
        stream: backendStream('local'),
        expectedVersion: 0,
        events: [{ type: 'oddity.seen', v: 1, atMs: 0, text }],
      });
      expect((await all(store))[0]?.event).toMatchObject({ text });
    });

    test('keeps a checkpoint by name, the newest one only', async () => {
      expect(await store.loadCheckpoint('jobs')).toBeNull();
      await store.saveCheckpoint('jobs', { position: 1, data: { a: [1, null, 'x'] } });
      await store.saveCheckpoint('tasks', { position: 2, data: null });
      await store.saveCheckpoint('jobs', { position: 3, data: { b: 2 } });
      expect(await store.loadCheckpoint('jobs')).toEqual({ position: 3, data: { b: 2 } });
      expect(await store.loadCheckpoint('tasks')).toEqual({ position: 2, data: null });
    });

    test('INV-12 the log and its checkpoints outlive their user', async () => {
      await store.append(wholeLife(1));
      await store.saveCheckpoint('jobs', { position: 9, data: [1] });
      const before = await all(store);
      const reopened = await subject.reopen();
      expect(await all(reopened)).toEqual(before);
      expect(await reopened.loadCheckpoint('jobs')).toEqual({ position: 9, data: [1] });
      await reopened.append(create(2));
      expect(await reopened.lastPosition()).toBe(10);
    });

    test('a closed store refuses everything, and can be closed again', async () => {
      await store.close();
      await store.close();
      const closed = expect.objectContaining({ name: 'StoreError', fault: 'closed' });
      await expect(store.append(create(1))).rejects.toEqual(closed);
      await expect(store.readStream(stream(1))).rejects.toEqual(closed);
      await expect(all(store)).rejects.toEqual(closed);
      await expect(store.lastPosition()).rejects.toEqual(closed);
      await expect(store.saveCheckpoint('x', { position: 0, data: 1 })).rejects.toEqual(closed);
      await expect(store.loadCheckpoint('x')).rejects.toThrow(StoreError);
    });

    test('closing waits for what has been handed over', async () => {
      const append = store.append(create(1));
      await store.close();
      await expect(append).resolves.toHaveLength(1);
      expect(await all(await subject.reopen())).toHaveLength(1);
    });

    describe('import', () => {
      const recorded = (n: number, events = [createdJob(n), ...LIFE]) =>
        events.map((event, index) => ({
          position: 1000 + index,
          stream: stream(n),
          version: index + 1,
          recordedAtMs: 5,
          writer: 'elsewhere',
          event,
        }));

      test('takes recorded events with their time and writer, at the next positions', async () => {
        await store.append(create(1));
        expect(await store.importRecorded(recorded(2))).toEqual({ imported: 9, alreadyThere: 0 });
        const records = await all(store, 1);
        expect(records).toEqual(recorded(2).map((record, index) => ({ ...record, position: index + 2 })));
      });

      test('taking the same events again changes nothing', async () => {
        await store.importRecorded(recorded(2));
        expect(await store.importRecorded([...recorded(2), ...recorded(3)])).toEqual({ imported: 9, alreadyThere: 9 });
        expect(await store.lastPosition()).toBe(18);
      });

      test.each([
        ['goes further than the log', () => [...recorded(3), ...recorded(1, [createdJob(1), ...LIFE.slice(0, 3)])]],
        ['ends before the log', () => [...recorded(3), ...recorded(1).slice(0, 2)]],
        [
          'differs in an event',
          () => [...recorded(3), ...recorded(1, [createdJob(1), at(1).started(), at(11).accepted()])],
        ],
        [
          'differs in time',
          () =>
            recorded(1)
              .slice(0, 3)
              .map((record) => ({ ...record, recordedAtMs: 6 })),
        ],
        ['begins in the middle of a stream', () => [...recorded(3), ...recorded(2).slice(1)]],
        ['leaves out an event', () => [...recorded(3), ...recorded(2).filter(({ version }) => version !== 4)]],
        ['repeats an event', () => [...recorded(3), ...recorded(3)]],
      ])('refuses the whole import when a stream %s', async (_how, records) => {
        await store.importRecorded(recorded(1).slice(0, 3));
        const before = await all(store);
        await expect(store.importRecorded(records())).rejects.toMatchObject({ name: 'ImportError' });
        expect(await all(store)).toEqual(before);
      });

      test('an import that fails half way leaves nothing, and hurts no append beside it', async () => {
        function* broken() {
          yield* recorded(2);
          throw new Error('unplugged');
        }
        const records = { [Symbol.iterator]: broken };
        const results = await Promise.allSettled([
          store.append(create(1)),
          store.importRecorded(records),
          store.append(create(3)),
        ]);
        expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
        expect((await all(store)).map((record) => record.stream)).toEqual([stream(1), stream(3)]);
      });
    });

    test('a first event names the stream that it begins', async () => {
      const other = created({ jobId: jobId(1), token: token(7) });
      await expect(store.append({ stream: stream(2), expectedVersion: 0, events: [other] })).rejects.toThrow(
        `begins ${stream(1)}`,
      );
    });
  });
}
