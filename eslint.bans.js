/**
 * What no file may use outside its home. Time, chance and processes come in as arguments (src/runtime, the backends'
 * one spawning file each), so that every test and the simulation can hand in their own and a replay starts nothing.
 */
const CLOCK = 'The time comes in as an argument: see Clock in src/runtime/clock.ts.';
const TIMER = 'Timers live in src/runtime: take a Clock and use its sleep().';
const CHANCE = 'Chance comes in as an argument: see Random in src/runtime/random.ts.';
const SPAWN =
  "Processes are started in one place per backend, which bounds their time, output and environment: the backend's spawning file.";
const SLEEP = 'No bare sleeps: wait for a condition with a bound (test/support/wait.ts).';

const SPAWNING_MODULES = ['child_process', 'node:child_process', 'execa', 'cluster', 'node:cluster'];
const TIMER_MODULES = ['timers', 'node:timers', 'timers/promises', 'node:timers/promises'];
const CHANCE_NAMES = ['default', 'webcrypto', 'getRandomValues'];
for (const kind of ['Bytes', 'Int', 'UUID', 'UUIDv7', 'Fill', 'FillSync']) CHANCE_NAMES.push(`random${kind}`);

/** A dynamic import or require of a banned module is the same as a static one. */
const dynamicLoad = (modules, message) => {
  const pattern = `/^(${modules.map((name) => name.replaceAll('/', '\\/')).join('|')})$/`;
  return [
    { selector: `ImportExpression[source.value=${pattern}]`, message },
    { selector: `CallExpression[callee.name='require'][arguments.0.value=${pattern}]`, message },
    { selector: `CallExpression[callee.property.name='getBuiltinModule'][arguments.0.value=${pattern}]`, message },
  ];
};
const paths = (modules, message) => modules.map((name) => ({ name, message }));

const BANS = {
  clock: {
    globals: [{ name: 'performance', message: CLOCK }],
    properties: [
      { object: 'Date', property: 'now', message: CLOCK },
      { object: 'process', property: 'hrtime', message: CLOCK },
      { object: 'process', property: 'uptime', message: CLOCK },
    ],
    syntax: [
      { selector: "NewExpression[callee.name='Date'][arguments.length=0]", message: CLOCK },
      { selector: "CallExpression[callee.name='Date']", message: CLOCK },
      ...dynamicLoad(['perf_hooks', 'node:perf_hooks'], CLOCK),
    ],
    imports: paths(['perf_hooks', 'node:perf_hooks'], CLOCK),
  },
  timer: {
    globals: ['setTimeout', 'setInterval', 'setImmediate'].map((name) => ({ name, message: TIMER })),
    properties: [
      { object: 'AbortSignal', property: 'timeout', message: TIMER },
      { object: 'Atomics', property: 'wait', message: TIMER },
      { object: 'Atomics', property: 'waitAsync', message: TIMER },
    ],
    syntax: dynamicLoad(TIMER_MODULES, TIMER),
    imports: paths(TIMER_MODULES, TIMER),
  },
  chance: {
    globals: [{ name: 'crypto', message: CHANCE }],
    properties: [
      { object: 'Math', property: 'random', message: CHANCE },
      ...CHANCE_NAMES.slice(1).map((property) => ({ object: 'crypto', property, message: CHANCE })),
    ],
    syntax: dynamicLoad(['crypto', 'node:crypto'], CHANCE),
    imports: ['crypto', 'node:crypto'].map((name) => ({ name, importNames: CHANCE_NAMES, message: CHANCE })),
  },
  spawn: {
    globals: [],
    properties: [],
    syntax: dynamicLoad(SPAWNING_MODULES, SPAWN),
    imports: paths(SPAWNING_MODULES, SPAWN),
  },
  /** For tests and benchmarks: timers as such are fine there, waiting for time to pass is not. */
  sleep: {
    globals: [],
    properties: [{ object: 'Atomics', property: 'wait', message: SLEEP }],
    syntax: [
      { selector: "NewExpression[callee.name='Promise'] CallExpression[callee.name='setTimeout']", message: SLEEP },
      ...dynamicLoad(['timers/promises', 'node:timers/promises'], SLEEP),
    ],
    imports: paths(['timers/promises', 'node:timers/promises'], SLEEP),
  },
  seedless: {
    globals: [],
    properties: [
      { object: 'Math', property: 'random', message: 'A test that rolls dice takes them from a printed seed.' },
    ],
    syntax: [],
    imports: [],
  },
  /** What would hide an import or an export from a reader and from the arrow rules. */
  hiding: {
    globals: [],
    properties: [],
    syntax: [
      { selector: 'ExportAllDeclaration', message: 'An index lists its exports by name.' },
      { selector: "ImportExpression:not([source.type='Literal'])", message: 'An import that no arrow rule can see.' },
    ],
    imports: [],
  },
  unfinished: {
    globals: ['fit', 'fdescribe', 'xit', 'xtest', 'xdescribe'].map((name) => ({
      name,
      message: 'Every test runs, always.',
    })),
    properties: [],
    syntax: ['object', 'object.object', 'object.callee.object'].map((root) => ({
      selector: `MemberExpression[property.name=/^(only|skip|todo|failing)$/][${root}.name=/^(test|it|describe)$/]`,
      message: 'Every test runs, always.',
    })),
    imports: [],
  },
};

/** The rules for a set of bans. One call per kind of file: a later entry of the config replaces a rule, it adds nothing. */
export function ban(...names) {
  const all = (part) => names.flatMap((name) => BANS[name][part]);
  // Off by name: a bare severity would keep the options of an earlier entry.
  const rule = (list, options) => (list.length === 0 ? 'off' : ['error', ...options]);
  const [globals, properties, syntax, imports] = [all('globals'), all('properties'), all('syntax'), all('imports')];
  return {
    'no-restricted-globals': rule(globals, [{ globals, checkGlobalObject: true }]),
    'no-restricted-properties': rule(properties, properties),
    'no-restricted-syntax': rule(syntax, syntax),
    'no-restricted-imports': rule(imports, [{ paths: imports }]),
  };
}
