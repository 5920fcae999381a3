/**
 * The arrows of ARCHITECTURE.md. Type-only imports count: what a file must know to compile is what it depends on.
 * A folder lists what it may import; everything else of ours is forbidden to it.
 */
const own = '^src/';

/** Files under `from` import themselves and `may`, and nothing else of ours. */
const layer = (name, from, may, comment) => ({
  name,
  severity: 'error',
  comment,
  from: { path: from },
  to: { path: own, pathNot: [from, ...may] },
});

/** A package that only its home imports. */
const home = (name, packages, files) => ({
  name: `${name}-has-a-home`,
  severity: 'error',
  comment: `Only ${files.join(', ')} knows ${packages.join(', ')}: replacing it must stay a change of one place.`,
  from: { path: own, pathNot: files },
  to: { path: packages.map((each) => `^node_modules/${each}/`) },
});

const machines = '^src/machines/';
const events = '^src/events/';
const runtime = '^src/runtime/';
const port = '^src/backend\\.ts$';
const parameters = '^src/parameters\\.ts$';
const workdir = '^src/workdir/';
const wire = '^src/coordinator/[a-z-]*api\\.ts$';
const agentPort = '^src/gateway/agent-port\\.ts$';
const composition = '^src/cli/compose\\.ts$';
const library = '^src/index\\.ts$';

module.exports = {
  forbidden: [
    layer('machines-know-nothing', machines, [], 'What may happen is pure: no I/O, no clock, nothing of ours.'),
    {
      name: 'machines-use-xstate-and-zod-only',
      severity: 'error',
      comment: 'Next year must be able to replay this year: no other package and nothing of Node decides a state.',
      from: { path: machines },
      to: { pathNot: [own, '^node_modules/(xstate|zod)/'] },
    },
    layer('events-know-machines', events, [machines, runtime], 'The log knows what may happen, not who does it.'),
    layer('runtime-knows-nothing', runtime, [], 'Clock, chance and log lines are handed to the rest.'),
    layer('port-knows-machines', port, [machines], 'The port speaks in the words of the machines.'),
    layer('parameters-know-nothing', parameters, [], 'A check of data against a schema.'),
    layer('workdir-knows-the-port', workdir, [port, machines], "A job's directory is the same on every backend."),
    layer(
      'slurm-fills-the-port',
      '^src/slurm/',
      [port, workdir, machines, runtime, parameters],
      'A backend fills the port.',
    ),
    layer(
      'local-fills-the-port',
      '^src/local/',
      [port, workdir, machines, runtime, parameters],
      'A backend fills the port.',
    ),
    layer('wire-knows-machines', wire, [machines], 'Both ends of the wire read these schemas.'),
    layer(
      'worker-uses-the-port',
      '^src/worker/',
      [machines, events, port, workdir, runtime, parameters, wire, agentPort],
      'The loop must not know which backend it drives, nor how the coordinator works.',
    ),
    layer(
      'coordinator-keeps-tasks',
      '^src/coordinator/',
      [machines, events, runtime, parameters],
      'It never sees a backend.',
    ),
    layer('agent-stands-alone', '^src/agent/', [], 'One file, copied to a compute node and run there without us.'),
    {
      name: 'agent-uses-node-only',
      severity: 'error',
      comment: 'There are no packages where the agent runs.',
      from: { path: '^src/agent/' },
      to: { pathNot: [own], dependencyTypesNot: ['core'] },
    },
    layer('gateway-awaits-agents', '^src/gateway/', [machines, runtime], 'It knows ranks and commands, no tasks.'),
    {
      name: 'backends-are-composed-in-one-place',
      severity: 'error',
      comment: 'INV-2: beside the library index only the composition file knows that there are backends.',
      from: { path: own, pathNot: ['^src/(slurm|local)/', composition, library] },
      to: { path: '^src/(slurm|local)/' },
    },
    {
      name: 'nobody-imports-the-command-line',
      severity: 'error',
      from: { path: own, pathNot: '^src/cli/' },
      to: { path: '^src/cli/' },
    },
    {
      name: 'nobody-imports-the-library-index',
      severity: 'error',
      comment: 'Inside, files import each other by path.',
      from: { path: own },
      to: { path: library },
    },

    home('sqlite', ['better-sqlite3', '@types/better-sqlite3'], [events]),
    home('bus', ['eventemitter3'], [events]),
    home('http', ['fastify', '@fastify', 'fastify-type-provider-zod'], ['^src/coordinator/']),
    home('metrics', ['prom-client'], ['^src/(coordinator|worker|cli)/']),
    home('spawning', ['execa'], ['^src/slurm/broker\\.ts$', '^src/local/process\\.ts$']),
    home('toml', ['smol-toml'], ['^src/slurm/']),
    home('json-schema', ['ajv'], [parameters]),
    home('commands', ['commander', '@viz-js/viz', 'pino', 'ws'], ['^src/cli/']),
    home('statecharts', ['xstate'], [machines, '^src/cli/']),
    {
      name: 'node-spawning-has-a-home',
      severity: 'error',
      comment: 'Processes are started in one place per backend.',
      from: { path: own, pathNot: ['^src/slurm/broker\\.ts$', '^src/local/process\\.ts$', '^src/agent/agent\\.ts$'] },
      to: { path: '^(node:)?(child_process|cluster)$' },
    },

    { name: 'no-cycles', severity: 'error', from: {}, to: { circular: true } },
    { name: 'no-orphans', severity: 'error', from: { path: own, orphan: true }, to: {} },
    { name: 'no-unresolvable', severity: 'error', from: {}, to: { couldNotResolve: true } },
    {
      name: 'no-development-dependencies',
      severity: 'error',
      comment: 'A user who installs the package does not have them.',
      from: { path: own },
      to: { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'], pathNot: '^node_modules/@types/' },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'types', 'node', 'default'] },
  },
};
