/** What a script may rely on. In the README and in `open-compute --help`. */
export const EXIT = {
  ok: 0,
  /** Something failed that none of the other codes names. */
  failed: 1,
  /** Wrong usage or bad input: the command line, a payload, a file. Nothing was changed. */
  usage: 2,
  notFound: 3,
  /** No credential, a wrong or revoked one, or one whose role may not do this. */
  unauthorized: 4,
  /** The coordinator does not answer: the same command may work later. */
  unreachable: 5,
  /** The task ended without a result: failed, cancelled, a dead letter. */
  noResult: 6,
  /** A state directory or its storage: locked, read-only, full, corrupt. */
  storage: 7,
  /** Ctrl-C: 128 + SIGINT, as shells have it. */
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export const EXIT_CODES_HELP = `Exit codes:
  0    done
  1    failed
  2    wrong usage or bad input; nothing was changed
  3    not found
  4    credential missing, wrong, revoked, or not allowed to do this
  5    the coordinator does not answer
  6    the task ended without a result (failed, cancelled, dead letter)
  7    state directory or storage (locked, read-only, full, corrupt)
  130  interrupted`;
