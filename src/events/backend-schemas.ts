import { z } from 'zod';
import type { BackendEvent } from '../machines/backend-events.js';
import { Source } from '../machines/vocabulary.js';
import { Count, describes, Diagnostics, head, Name, Text } from './schema-parts.js';

/** Everything a `backend/<name>` stream may hold, in its newest shape. Text limits: schema-parts.ts. */
export const BackendEventSchema = describes<BackendEvent>()(
  z.discriminatedUnion('type', [
    z.strictObject({
      ...head('outage.began'),
      part: Source,
      kind: z.enum(['timedOut', 'unreachable']),
      detail: Text,
      jobsKept: Count,
    }),
    z.strictObject({ ...head('outage.ended'), part: Source }),
    z.strictObject({ ...head('oddity.seen'), text: Text }),
    z.strictObject({ ...head('worker.started'), worker: Name, report: Diagnostics }),
  ]),
);
