/** Variables that make a program load or run something beside the reviewed script. */
const LOADERS: ReadonlySet<string> = new Set([
  'BASH_ENV',
  'BASHOPTS',
  'ENV',
  'GCONV_PATH',
  'IFS',
  'JAVA_TOOL_OPTIONS',
  'NODE_OPTIONS',
  'NODE_PATH',
  'PERL5LIB',
  'PERL5OPT',
  'PROMPT_COMMAND',
  'PS4',
  'PYTHONHOME',
  'PYTHONPATH',
  'PYTHONSTARTUP',
  'RUBYLIB',
  'RUBYOPT',
  'SHELLOPTS',
]);
const LOADER_PATTERN = /^(?:LD_|DYLD_|BASH_FUNC_)/;

/** What Slurm's commands read as options, and what belongs to a step's launcher or to us. */
const OWNED = /^(?:SLURM|SBATCH|SQUEUE|SACCT|SCANCEL|SRUN|SALLOC|SCONTROL|OPEN_COMPUTE)_|^PMI/;

const CREDENTIAL =
  /(?:^|_)(?:TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|PWD|CREDENTIALS?|APIKEY|KEYS?|AUTH|COOKIE)(?:_|$)|SECRET|PASSWORD|PASSWD|PASSPHRASE|APIKEY|PRIVATEKEY/;
/** The path of a 0600 file is how a secret travels: `WANDB_API_KEY_FILE` is fine. */
const NAMES_A_PATH = /_(?:FILE|PATH|DIR)$/;

const VALUE_LIMIT = 4_096;

/** Why a profile may not set this variable (INV-9), or null. */
export function variableProblem(name: string, value: string): string | null {
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return 'is not the name of a variable';
  const upper = name.toUpperCase();
  if (LOADERS.has(upper) || LOADER_PATTERN.test(upper)) {
    return 'makes programs load or run other code: set it in the reviewed script if it is needed';
  }
  if (OWNED.test(upper)) return 'belongs to the scheduler or to open-compute';
  if (CREDENTIAL.test(upper) && !NAMES_A_PATH.test(upper)) {
    return 'looks like a credential: give the path of a file of mode 0600 in a variable that ends in _FILE';
  }
  if (value.length > VALUE_LIMIT) return `has a value of more than ${String(VALUE_LIMIT)} characters`;

  if (/[\u0000\n\r,]/.test(value)) return 'has a value with a comma, a newline or a NUL';
  if (/^(?:ALL|NONE|NIL)$/i.test(value)) return 'has a value that the scheduler reads as a keyword (ALL, NONE, NIL)';
  return null;
}
