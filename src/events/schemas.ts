import { z } from 'zod';
import type { BackendEvent } from '../machines/backend-events.js';
import type { JobEvent } from '../machines/job-events.js';
import type { SessionEvent } from '../machines/session-events.js';
import type { TaskEvent } from '../machines/task-events.js';
import { BackendEventSchema } from './backend-schemas.js';
import { StoreError } from './errors.js';
import { JobEventSchema } from './job-schemas.js';
import { SessionEventSchema } from './session-schemas.js';
import type { StreamKind } from './streams.js';
import { TaskEventSchema } from './task-schemas.js';
import { Envelope, lift, UPCASTERS, type Upcasters } from './upcasters.js';

/** Everything that the log may hold. The machines own the types; the schemas are held equal to them by the compiler. */
export type DomainEvent = JobEvent | TaskEvent | SessionEvent | BackendEvent;

interface Shape {
  readonly kind: StreamKind;
  /** The version that is written today. */
  readonly v: number;
  readonly schema: z.ZodType<DomainEvent>;
}

const SHAPES: ReadonlyMap<string, Shape> = new Map<string, Shape>([
  ...JobEventSchema.options.map((schema) => shape('job', schema)),
  ...TaskEventSchema.options.map((schema) => shape('task', schema)),
  ...SessionEventSchema.options.map((schema) => shape('session', schema)),
  ...BackendEventSchema.options.map((schema) => shape('backend', schema)),
]);

type EventSchema = z.ZodType<DomainEvent> & {
  readonly shape: { readonly type: z.ZodLiteral<string>; readonly v: z.ZodLiteral<number> };
};

function shape(kind: StreamKind, schema: EventSchema): [string, Shape] {
  return [schema.shape.type.value, { kind, v: schema.shape.v.value, schema }];
}

/** The kind of stream that an event type belongs to. */
export const streamKindOf = (type: DomainEvent['type']): StreamKind | undefined => SHAPES.get(type)?.kind;

export const isJobEvent = (event: DomainEvent): event is JobEvent => streamKindOf(event.type) === 'job';
export const isTaskEvent = (event: DomainEvent): event is TaskEvent => streamKindOf(event.type) === 'task';

export const isSessionEvent = (event: DomainEvent): event is SessionEvent => streamKindOf(event.type) === 'session';

/** Every event type there is. */
export const eventTypes = (): readonly string[] => [...SHAPES.keys()];

/**
 * Reads one event of any version ever written. Throws `ZodError` on a record that no version explains, `StoreError`
 * (`newerVersion`) on a type or version that this release does not know.
 */
export function readEvent(raw: unknown, upcasters: Upcasters = UPCASTERS): DomainEvent {
  const event = lift(Envelope.parse(raw), upcasters);
  const known = SHAPES.get(event.type);
  if (known === undefined || event.v > known.v) {
    const knownText = known === undefined ? 'no such event' : `version ${String(known.v)}`;
    throw new StoreError(
      'newerVersion',
      `the log holds ${JSON.stringify(event.type)} of version ${String(event.v)}; this release knows ${knownText}: read it with the release that wrote it, or a newer one`,
    );
  }
  return known.schema.parse(event);
}

/** Checks an event that is about to be written against today's shapes. Does not throw. */
export function parseEvent(event: DomainEvent): z.ZodSafeParseResult<DomainEvent> {
  return (SHAPES.get(event.type)?.schema ?? UnknownType).safeParse(event);
}

const UnknownType: z.ZodType<DomainEvent> = z.never();

/**
 * The event in a text that a store of ours kept. One of today's version is taken as it is, by `type` and `v` alone: it was
 * validated in full when it was appended or imported, and doing it again would double the time of a restart (measured
 * with 1,000,000 events: read and parse 1.9 s, with this check 2.0 s, with `readEvent` 4.4 s). Older ones are lifted and
 * validated. Throws like `readEvent`, and SyntaxError.
 */
export function storedEvent(json: string): DomainEvent {
  const stored: unknown = JSON.parse(json);
  return isCurrent(stored) ? stored : readEvent(stored);
}

function isCurrent(stored: unknown): stored is DomainEvent {
  if (typeof stored !== 'object' || stored === null || !('type' in stored) || !('v' in stored)) return false;
  return typeof stored.type === 'string' && SHAPES.get(stored.type)?.v === stored.v;
}
