/** Everything that the coordinator says no to, with the HTTP status that says so. Codes are for programs. */
export const PROBLEM_STATUS = {
  invalid_request: 400,
  invalid_result: 422,
  invalid_profile: 422,
  unauthenticated: 401,
  credential_revoked: 401,
  forbidden: 403,
  not_found: 404,
  /** An old epoch, or a task that is over: final (INV-7). */
  stale: 409,
  not_completed: 409,
  last_admin: 409,
  /** A step for a session that holds no allocation: refused, never queued and never an allocation of its own (INV-4). */
  no_allocation: 409,
  /** A worker that has not said hello. */
  hello_needed: 412,
  too_large: 413,
  url_too_long: 414,
  unknown_profile: 422,
  parameters_invalid: 422,
  key_reused: 422,
  /** An earlier job of the task has to be reported over first (INV-3); the same request is right later. */
  job_open: 423,
  /** A bound of the coordinator; the same request may be right later. */
  too_many_steps: 429,
  headers_too_large: 431,
  internal: 500,
  too_many_watchers: 503,
  storage_failed: 503,
  busy: 503,
  shutting_down: 503,
} as const;

export type ProblemCode = keyof typeof PROBLEM_STATUS;

/** `hint` says what to do next. */
export interface Problem {
  readonly code: ProblemCode;
  readonly message: string;
  readonly hint: string;
}

export type Answer<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly problem: Problem };

export const answer = <T>(value: T): Answer<T> => ({ ok: true, value });
export const no = (
  code: ProblemCode,
  message: string,
  hint: string,
): { readonly ok: false; readonly problem: Problem } => ({
  ok: false,
  problem: { code, message, hint },
});
