import { describe, expect, jest, test } from '@jest/globals';
import { EventBus, withBus } from '../../src/events/bus.js';
import { MemoryEventStore } from '../../src/events/memory-store.js';
import { clip, clipDiagnostics, TEXT_MAX } from '../../src/events/schema-parts.js';
import { isJobEvent, isTaskEvent, readEvent, storedEvent } from '../../src/events/schemas.js';
import type { RecordedEvent } from '../../src/events/store.js';
import {
  backendStream,
  jobIdOf,
  jobStream,
  parseStreamName,
  sessionStream,
  streamParts,
  taskStream,
} from '../../src/events/streams.js';
import type { Upcasters } from '../../src/events/upcasters.js';
import { jobId, taskId } from '../support/ids.js';
import { at, created } from '../support/job-events.js';
import { EVENTS } from '../support/job-situations.js';
import { create, next, stream } from '../support/logs.js';
import { submitted } from '../support/task-events.js';

const viaJson = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

describe('reading an event', () => {
  test('gives back every event as it was written', () => {
    for (const event of [created(), submitted(), ...Object.values(EVENTS)]) {
      expect(readEvent(viaJson(event))).toEqual(event);
      expect(storedEvent(JSON.stringify(event))).toEqual(event);
    }
  });

  test('tells events of jobs and of tasks apart', () => {
    expect([created(), submitted()].map((event) => [isJobEvent(event), isTaskEvent(event)])).toEqual([
      [true, false],
      [false, true],
    ]);
  });

  test.each([
    ['nothing', null],
    ['no object', 'job.created'],
    ['no type', { v: 1, atMs: 0 }],
    ['no version', { type: 'attempt.ended', atMs: 0, how: '' }],
    ['a version that is no number', { type: 'attempt.ended', v: '1', atMs: 0, how: '' }],
    ['a version that never was', { type: 'attempt.ended', v: 0, atMs: 0, how: '' }],
    ['a field too many', { type: 'attempt.ended', v: 1, atMs: 0, how: '', note: '' }],
    ['a field too few', { type: 'attempt.ended', v: 1, atMs: 0 }],
    ['a time that is none', { type: 'attempt.ended', v: 1, atMs: -1, how: '' }],
    ['an id that is none', viaJson(created({ jobId: 'job_1; rm -rf /' as never }))],
    ['a name that a scheduler would misread', viaJson(created({ profile: 'a,b' }))],
  ])('refuses %s', (_what, raw) => {
    expect(() => readEvent(raw)).toThrow(
      expect.objectContaining({ name: expect.stringMatching(/ZodError|\$ZodError/) }),
    );
  });

  test.each([
    [
      'a type that this release does not know',
      { type: 'job.teleported', v: 1, atMs: 0 },
      /job\.teleported.*no such event/,
    ],
    ['a newer version', { ...at(1).attemptEnded(), v: 2 }, /attempt\.ended.*version 2.*knows version 1/],
    ['a type named like a method', { type: 'constructor', v: 1, atMs: 0 }, /no such event/],
  ])('INV-12 refuses %s as written by a newer release', (_what, raw, message) => {
    expect(() => readEvent(raw)).toThrow(
      expect.objectContaining({ fault: 'newerVersion', message: expect.stringMatching(message) }),
    );
  });
});

describe('upcasters', () => {
  /** A history that never was: the acceptance had another name and a bare id, then a handle without a cluster. */
  const HISTORY: Upcasters = {
    'job.accepted@1': (old) => ({ ...old, v: 2 }),
    'job.accepted@2': ({ id, atMs }) => ({
      type: 'submission.accepted',
      v: 0,
      atMs,
      handle: { id, submittedAtMs: atMs },
    }),
    'submission.accepted@0': (old) => ({ ...old, v: 1, handle: { ...(old['handle'] as object), cluster: null } }),
  };
  const newest = { type: 'submission.accepted', v: 1, atMs: 7, handle: { id: '42', cluster: null, submittedAtMs: 7 } };

  test('INV-12 lift an event of any age, step by step, to the shape of today', () => {
    expect(readEvent({ type: 'job.accepted', v: 1, atMs: 7, id: '42' }, HISTORY)).toEqual(newest);
    expect(
      readEvent({ type: 'submission.accepted', v: 0, atMs: 7, handle: { id: '42', submittedAtMs: 7 } }, HISTORY),
    ).toEqual(newest);
    expect(readEvent(newest, HISTORY)).toEqual(newest);
  });

  test('do not save an old event that its own version does not explain', () => {
    expect(() => readEvent({ type: 'job.accepted', v: 1, atMs: 7 }, HISTORY)).toThrow(/handle/);
  });

  test('that run in a circle are an error, not a hang', () => {
    const circle: Upcasters = { 'a@1': (old) => ({ ...old, type: 'b' }), 'b@1': (old) => ({ ...old, type: 'a' }) };
    expect(() => readEvent({ type: 'a', v: 1 }, circle)).toThrow(/a@1 run in a circle/);
  });

  test('are looked up by their own names only', () => {
    expect(() => readEvent({ type: 'toString', v: 1 }, {})).toThrow(/no such event/);
  });
});

describe('names of streams', () => {
  test('are made from ids and taken apart again', () => {
    expect(streamParts(jobStream(jobId(3)))).toEqual({ kind: 'job', id: jobId(3) });
    expect(streamParts(taskStream(taskId(3)))).toEqual({ kind: 'task', id: taskId(3) });
    expect(streamParts(backendStream('hpc-1'))).toEqual({ kind: 'backend', id: 'hpc-1' });
    expect(streamParts(sessionStream(taskId(3)))).toEqual({ kind: 'session', id: taskId(3) });
    expect(parseStreamName(sessionStream(taskId(3)))).toBe(`session/${taskId(3)}`);
    expect(jobIdOf(jobStream(jobId(3)))).toBe(jobId(3));
  });

  test('that are none are quoted, shortened, and told what a stream is called', () => {
    expect(() => parseStreamName('job/42')).toThrow('"job/42" is no stream: a stream is job/<job id>');
    expect(() => parseStreamName(`x${'y'.repeat(10_000)}\n`)).toThrow(/^"xy{99}…" is no stream/);
    expect(() => parseStreamName(`task/${jobId()}`)).toThrow(/is no stream/);
    expect(() => parseStreamName('session/s_1')).toThrow(/is no stream/);
  });
});

describe('long texts', () => {
  test('are cut by the writer to what the log takes, with a mark', () => {
    expect(clip('short')).toBe('short');
    expect(clip('x'.repeat(TEXT_MAX))).toHaveLength(TEXT_MAX);
    const cut = clip('x'.repeat(TEXT_MAX + 1));
    expect(cut).toHaveLength(TEXT_MAX);
    expect(cut).toMatch(/^x+… \[cut\]$/);
    expect(readEvent(viaJson({ ...at(1).attemptEnded(), how: cut }))).toMatchObject({ how: cut });
  });

  test('are never cut inside a character', () => {
    for (let length = 10; length < 30; length += 1)
      expect(clip('😀'.repeat(50), length)).toMatch(/^(\p{Emoji_Presentation})*… \[cut\]$/u);
  });

  test("a backend's words are cut one by one, and in number", () => {
    const words = Object.fromEntries(Array.from({ length: 150 }, (_, n) => [`k${n}`, 'x'.repeat(9000)]));
    const diagnostics = clipDiagnostics({ ['k'.repeat(900)]: '', ...words });
    const event = { ...EVENTS.running, diagnostics };
    expect(readEvent(viaJson(event))).toEqual(event);
  });
});

describe('the bus', () => {
  const memory = () => new MemoryEventStore({ writer: 'w', nowMs: () => 1 });

  test('tells subscribers of events when they are durable, in the order of the log, before the append returns', async () => {
    const store = memory();
    const bus = new EventBus(() => undefined);
    const heard: string[] = [];
    const durable: Promise<number>[] = [];
    bus.onEvery(({ position, event }) => {
      heard.push(`${position} ${event.type}`);
      durable.push(store.lastPosition());
    });
    const attempts: number[] = [];
    bus.on('submission.started', ({ event }) => void attempts.push(event.attempt));
    const published = withBus(store, bus);
    await published.append(create(1));
    expect(heard).toEqual(['1 job.created']);
    await published.appendAll([create(2), next(1, 1, at(1).started(7))]);
    expect(heard).toEqual(['1 job.created', '2 job.created', '3 submission.started']);
    expect(await Promise.all(durable)).toEqual([1, 3, 3]);
    expect(attempts).toEqual([7]);
    expect(await published.readStream(stream(1))).toHaveLength(2);
  });

  test('is silent about an append that failed', async () => {
    const bus = new EventBus(() => undefined);
    const heard = jest.fn<(recorded: RecordedEvent) => void>();
    bus.onEvery(heard);
    const store = withBus(memory(), bus);
    await expect(store.append(next(1, 5, at(1).started()))).rejects.toThrow(/at version 0/);
    expect(heard).not.toHaveBeenCalled();
  });

  test('keeps a subscriber that throws or rejects away from the writer and from the others', async () => {
    const errors: [unknown, RecordedEvent][] = [];
    const bus = new EventBus((error, recorded) => void errors.push([error, recorded]));
    bus.on('job.created', () => {
      throw new Error('thrown');
    });
    bus.onEvery(() => Promise.reject(new Error('rejected')));
    const heard = jest.fn<(recorded: RecordedEvent) => void>();
    bus.onEvery(heard);
    const [recorded] = await withBus(memory(), bus).append(create(1));
    expect(heard).toHaveBeenCalledTimes(1);
    expect(errors).toEqual([
      [new Error('thrown'), recorded],
      [new Error('rejected'), recorded],
    ]);
  });

  test('forgets a subscriber that has left', async () => {
    const bus = new EventBus(() => undefined);
    const heard = jest.fn<(recorded: RecordedEvent) => void>();
    const leave = bus.on('job.created', heard);
    const store = withBus(memory(), bus);
    await store.append(create(1));
    leave();
    leave();
    await store.append(create(2));
    expect(heard).toHaveBeenCalledTimes(1);
  });
});

describe('the store in memory', () => {
  test('a fault before an append loses it, a fault after one loses only the answer', async () => {
    const faults: string[] = [];
    let fail: 'before' | 'after' | null = null;
    const store = new MemoryEventStore({
      writer: 'w',
      nowMs: () => 1,
      onAppend: (when, appends) => {
        faults.push(`${when} ${appends.length}`);
        if (when === fail) throw new Error(`crash ${when}`);
      },
    });
    fail = 'before';
    await expect(store.append(create(1))).rejects.toThrow('crash before');
    expect(await store.lastPosition()).toBe(0);
    fail = 'after';
    await expect(store.append(create(1))).rejects.toThrow('crash after');
    expect(await store.lastPosition()).toBe(1);
    expect(faults).toEqual(['before 1', 'before 1', 'after 1']);
  });

  test('opened again it is the same log for another user, and refuses the old one', async () => {
    const store = new MemoryEventStore({ writer: 'first', nowMs: () => 1 });
    await store.append(create(1));
    const again = store.reopen({ writer: 'second' });
    await expect(store.append(create(2))).rejects.toMatchObject({ fault: 'closed' });
    const [recorded] = await again.append(create(2));
    expect(recorded).toMatchObject({ position: 2, writer: 'second' });
  });

  test('cut after a position it is the log that a crash would have left', async () => {
    const store = new MemoryEventStore({ writer: 'w', nowMs: () => 1 });
    await store.appendAll([create(1), create(2), next(1, 1, at(1).started())]);
    await store.saveCheckpoint('early', { position: 1, data: 1 });
    await store.saveCheckpoint('late', { position: 3, data: 3 });
    const cut = store.cutAfter(2);
    await cut.append(next(1, 1, at(9).started()));
    expect(await cut.lastPosition()).toBe(3);
    expect(await cut.loadCheckpoint('early')).toEqual({ position: 1, data: 1 });
    expect(await cut.loadCheckpoint('late')).toBeNull();
    expect((await store.readStream(stream(1), 1))[0]?.event).toEqual(at(1).started());
  });
});
