import { defineConfig } from 'eslint/config';
import tseslint from 'typescript-eslint';
import { ban } from './eslint.bans.js';

export default defineConfig(
  { ignores: ['dist/', 'coverage/', 'fixtures/', '**/*.js', '**/*.cjs', '**/*.mjs'] },
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked],
    languageOptions: { parserOptions: { project: './tsconfig.test.json', tsconfigRootDir: import.meta.dirname } },
    rules: {
      eqeqeq: 'error',
      'no-console': 'error',
      'no-empty': 'error',
      'no-fallthrough': 'error',
      'no-unsafe-finally': 'error',
      'no-useless-escape': 'error',
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/no-unnecessary-condition': [
        'error',
        { allowConstantLoopConditions: 'only-allowed-literals' },
      ],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
    },
  },

  // Later entries win: the rule first, then the homes of what it bans.
  { files: ['src/**/*.ts'], rules: ban('clock', 'timer', 'chance', 'spawn', 'hiding') },
  { files: ['src/runtime/**/*.ts'], rules: ban('spawn', 'hiding') },
  // The agent is a program of its own on another machine: nobody hands it a clock.
  { files: ['src/agent/agent.ts'], rules: ban('hiding') },
  { files: ['src/slurm/broker.ts', 'src/local/process.ts'], rules: ban('clock', 'timer', 'chance', 'hiding') },
  { files: ['src/cli/**/*.ts'], rules: { 'no-console': 'off' } },

  {
    files: ['test/**/*.ts', 'bench/**/*.ts'],
    rules: {
      ...ban('sleep', 'seedless', 'unfinished', 'hiding'),
      'no-console': 'off',
      // A fake fills an asynchronous port with what it knows already.
      '@typescript-eslint/require-await': 'off',
    },
  },
  { files: ['test/support/wait.ts'], rules: ban('seedless', 'unfinished', 'hiding') },
);
