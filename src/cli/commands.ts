import type { Command } from 'commander';
import type { Io } from './io.js';

/** What a command's module exports: it gives the command its arguments, options and action. */
export interface CommandModule {
  readonly define: (command: Command, io: Io) => void;
}

export interface CommandEntry {
  readonly name: string;
  readonly group: string;
  readonly summary: string;
  /** Each module is loaded only when its command is asked for: zod, xstate or fastify would slow every start. */
  readonly load: () => Promise<CommandModule>;
}

const TASKS = 'Tasks:';
const RUN = 'Services:';
const SESSIONS = 'Interactive work:';
const LOG = 'The log:';

export const COMMANDS: readonly CommandEntry[] = [
  {
    name: 'demo',
    group: RUN,
    summary: 'run the whole way once on this machine: coordinator, worker, one task, its result',
    load: () => import('./commands/demo.js'),
  },
  {
    name: 'serve',
    group: RUN,
    summary: 'run the coordinator: tasks, leases and credentials over HTTP',
    load: () => import('./commands/serve.js'),
  },
  {
    name: 'worker',
    group: RUN,
    summary: 'lease tasks and run them as jobs on a backend',
    load: () => import('./commands/worker.js'),
  },
  {
    name: 'credentials',
    group: RUN,
    summary: 'create, list and revoke credentials',
    load: () => import('./commands/credentials.js'),
  },
  {
    name: 'doctor',
    group: RUN,
    summary: 'check this machine, a state directory, a backend, credentials and the coordinator',
    load: () => import('./commands/doctor.js'),
  },
  { name: 'submit', group: TASKS, summary: 'submit a task', load: () => import('./commands/submit.js') },
  {
    name: 'status',
    group: TASKS,
    summary: 'show all tasks, or one with its history',
    load: () => import('./commands/status.js'),
  },
  { name: 'watch', group: TASKS, summary: 'follow tasks as they change', load: () => import('./commands/watch.js') },
  { name: 'result', group: TASKS, summary: "print a task's result", load: () => import('./commands/result.js') },
  {
    name: 'logs',
    group: TASKS,
    summary: "print the newest part of a task's output",
    load: () => import('./commands/logs.js'),
  },
  { name: 'cancel', group: TASKS, summary: 'ask for the end of a task', load: () => import('./commands/cancel.js') },
  {
    name: 'abandon',
    group: TASKS,
    summary: 'stop watching a task whose job may live on',
    load: () => import('./commands/abandon.js'),
  },
  {
    name: 'profiles',
    group: TASKS,
    summary: 'show what may be run, and how many workers offer it',
    load: () => import('./commands/profiles.js'),
  },
  {
    name: 'session',
    group: SESSIONS,
    summary: 'hold a machine, or several, for a while, and run commands inside',
    load: () => import('./commands/session.js'),
  },
  {
    name: 'explain',
    group: LOG,
    summary: 'tell the story of one job: what was asked, what the answers were, why it went on as it did',
    load: () => import('./commands/explain.js'),
  },
  { name: 'events', group: LOG, summary: 'export and import the log', load: () => import('./commands/events.js') },
  {
    name: 'replay',
    group: LOG,
    summary: 'print the state after each event',
    load: () => import('./commands/replay.js'),
  },
  {
    name: 'inspect',
    group: LOG,
    summary: 'send the events of a job or a session through a live machine, for the Stately inspector',
    load: () => import('./commands/inspect.js'),
  },
  {
    name: 'machine',
    group: LOG,
    summary: 'print or draw the state machine of jobs, tasks or sessions',
    load: () => import('./commands/machine.js'),
  },
];
