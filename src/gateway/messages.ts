import { z } from 'zod';

/** Output and input travel in pieces of at most this, as base64. */
export const PIECE_BYTES = 64 * 1024;
/** A piece in base64, and the rest of its message. */
export const LINE_MAX_BYTES = Math.ceil(PIECE_BYTES / 3) * 4 + 2_048;

const stepId = z.string().min(1).max(64);
const detail = z.string().max(1_000);
const bytes = z.int().nonnegative();

/** Bytes as base64. Only its one canonical form is taken: Node's decoder skips over what is none. */
const data = z.string().transform((text, context) => {
  const decoded = Buffer.from(text, 'base64');
  if (decoded.length > PIECE_BYTES || decoded.toString('base64') !== text) {
    context.addIssue('not base64 of at most 64 KiB');
    return z.NEVER;
  }
  return decoded;
});

/** The first message of an agent after its welcome. */
export const Hello = z.object({
  type: z.literal('hello'),
  node: z
    .string()
    .min(1)
    .max(255)
    .regex(/^[\x21-\x7e]+$/),
  workspace: z.boolean(),
  version: z.string().max(64).nullable(),
});
export type Hello = z.infer<typeof Hello>;

/** What a registered agent says. Unknown fields are dropped: a newer agent may say more. */
export const AgentMessage = z.discriminatedUnion('type', [
  z.object({ type: z.literal('pong'), id: z.int().nonnegative() }),
  z.object({ type: z.literal('output'), stepId, stream: z.enum(['stdout', 'stderr']), data }),
  /** So many bytes of input reached the command, or went nowhere because it has ended. */
  z.object({ type: z.literal('inputTaken'), stepId, bytes }),
  z.object({
    type: z.literal('ended'),
    stepId,
    exitCode: z.int().nullable(),
    signal: z
      .string()
      .regex(/^SIG[A-Z0-9]{1,12}$/)
      .nullable(),
    stoppedBy: z.enum(['itself', 'cancel', 'timeLimit']),
    droppedBytes: bytes,
  }),
  z.object({ type: z.literal('notStarted'), stepId, detail }),
]);
export type AgentMessage = z.infer<typeof AgentMessage>;

/** What the gateway says to a registered agent. */
export type GatewayMessage =
  | { readonly type: 'ping'; readonly id: number }
  | {
      readonly type: 'start';
      readonly stepId: string;
      readonly argv: readonly string[];
      readonly stdin: boolean;
      readonly timeLimitMs: number | null;
      readonly outputLimitBytes: number;
    }
  /** `data`: base64. */
  | { readonly type: 'input'; readonly stepId: string; readonly data: string }
  | { readonly type: 'endInput'; readonly stepId: string }
  | { readonly type: 'cancel'; readonly stepId: string }
  /** The session is over. */
  | { readonly type: 'end' };

/** One message as a line, without its end. */
export const lineOf = (message: GatewayMessage): string => JSON.stringify(message);

/** A message out of a line, or in words why it is none. */
export function readLine<T>(
  schema: z.ZodType<T>,
  line: string,
): { readonly ok: true; readonly message: T } | { readonly ok: false; readonly why: string } {
  let raw: unknown;
  try {
    raw = JSON.parse(line);
  } catch {
    return { ok: false, why: 'it is not JSON' };
  }
  const read = schema.safeParse(raw);
  if (read.success) return { ok: true, message: read.data };
  const [issue] = read.error.issues;
  return { ok: false, why: `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'not understood'}` };
}
