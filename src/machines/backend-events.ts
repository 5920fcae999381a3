/**
 * The health of a backend: one event when an outage begins and one when it ends, never one per job per poll (INV-10).
 * `oddity.seen`: something in an answer that no table knows; once per distinct text.
 */
export type BackendEvent =
  | {
      readonly type: 'outage.began';
      readonly v: 1;
      readonly atMs: number;
      readonly part: 'queue' | 'accounting';
      readonly kind: 'timedOut' | 'unreachable';
      readonly detail: string;
      readonly jobsKept: number;
    }
  | { readonly type: 'outage.ended'; readonly v: 1; readonly atMs: number; readonly part: 'queue' | 'accounting' }
  | { readonly type: 'oddity.seen'; readonly v: 1; readonly atMs: number; readonly text: string }
  | {
      readonly type: 'worker.started';
      readonly v: 1;
      readonly atMs: number;
      readonly worker: string;
      readonly report: Readonly<Record<string, string>>;
    };
