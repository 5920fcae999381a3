import type { z } from 'zod';
import { ErrorBody } from './api.js';
import type { WireAnswer } from './transport.js';

/** What became of a call. `unreachable`: it may have taken effect; `refused`: the coordinator said no, and why. */
export type ClientAnswer<T> =
  | { readonly kind: 'answered'; readonly value: T }
  | {
      readonly kind: 'refused';
      readonly status: number;
      readonly code: string;
      readonly message: string;
      readonly hint: string;
    }
  | { readonly kind: 'unreachable'; readonly detail: string };

/** An answer counts only if it has the shape that was agreed: a proxy's error page is no answer. */
export function readAnswer<S extends z.ZodType>(wire: WireAnswer, schema: S): ClientAnswer<z.output<S>> {
  if (wire.kind === 'unreachable') return wire;
  const { status, body } = wire;
  if (status >= 200 && status < 300) {
    const parsed = schema.safeParse(body);
    if (parsed.success) return { kind: 'answered', value: parsed.data };
    const [issue] = parsed.error.issues;
    const where = issue === undefined ? '' : `: ${issue.path.join('.')} ${issue.message}`;
    return { kind: 'unreachable', detail: `an answer of another shape than agreed${where}` };
  }
  const parsed = ErrorBody.safeParse(body);
  const told = parsed.success ? parsed.data.error : null;
  // A 429 of the coordinator's own says what is too much, and is not mended by sending it again at once.
  if (status >= 500 || status === 408 || told === null) {
    return { kind: 'unreachable', detail: told?.message ?? `HTTP ${String(status)}, not from a coordinator` };
  }
  return { kind: 'refused', status, ...told };
}
