import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { TASK_PHASES } from '../machines/task-events.js';
import type { Coordinator } from './service.js';

/** What `/metrics` shows. Numbers are read when they are asked for. */
export class Metrics {
  readonly registry = new Registry();
  readonly requests: Histogram<'method' | 'route' | 'status'>;

  constructor({ core, sessions }: Coordinator, watchers: () => number) {
    const registers = [this.registry];
    collectDefaultMetrics({ register: this.registry });
    this.requests = new Histogram({
      name: 'open_compute_http_request_seconds',
      help: 'Time to answer a request, s; long polls wait on purpose',
      labelNames: ['method', 'route', 'status'],
      buckets: [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 10, 60],
      registers,
    });
    new Gauge({
      name: 'open_compute_tasks',
      help: 'Tasks by phase, since the log began',
      labelNames: ['phase'],
      registers,
      collect() {
        for (const phase of TASK_PHASES) this.set({ phase }, core.countOf(phase));
      },
    });
    const gauges: readonly (readonly [name: string, help: string, read: () => number])[] = [
      ['leases', 'Leases in force', () => core.leases.size],
      ['dispatch_queue', 'Tasks that could be leased now', () => core.dispatch.size],
      ['workers', 'Workers heard lately', () => core.workers.liveCount(core.monotonicMs)],
      ['session_steps', 'Steps of sessions under way', () => sessions.openSteps],
      ['watchers', 'Clients that watch', watchers],
      ['log_position', 'Position of the newest change', () => core.feed.head],
    ];
    for (const [name, help, read] of gauges) {
      new Gauge({
        name: `open_compute_${name}`,
        help,
        registers,
        collect() {
          this.set(read());
        },
      });
    }
    const counters: readonly (readonly [name: string, help: string, read: () => number])[] = [
      ['leases_granted', 'Leases granted', () => core.counters.leasesGranted],
      ['leases_expired', 'Leases that were not renewed in time', () => core.counters.leasesExpired],
      ['leases_unclaimed', 'Leases whose grant never arrived', () => core.counters.leasesUnclaimed],
      ['jobs_lost', 'Jobs taken away through no fault of their own', () => core.counters.jobsLost],
      ['jobs_abandoned', 'Open jobs left to themselves', () => core.counters.abandonedJobs],
      ['stale_refused', 'Words of old incarnations that were refused', () => core.counters.staleRefused],
    ];
    for (const [name, help, read] of counters) {
      new Counter({
        name: `open_compute_${name}_total`,
        help: `${help}, since the start`,
        registers,
        collect() {
          this.reset();
          this.inc(read());
        },
      });
    }
  }
}
