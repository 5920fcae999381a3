import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryDirectory } from './temporary-directory.js';

/** A fresh self-signed certificate, made by `openssl` (which is on every machine that builds this). PEM texts. */
export function selfSigned(names: string): { readonly cert: string; readonly key: string; readonly trust: string } {
  const directory = temporaryDirectory();
  const [keyPath, certPath] = [join(directory, 'key.pem'), join(directory, 'cert.pem')];
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  const subject = ['-subj', '/CN=test', '-addext', `subjectAltName=${names}`];
  execFileSync('openssl', ['req', '-x509', ...kind, ...subject, '-keyout', keyPath, '-out', certPath], {
    stdio: 'pipe',
  });
  const cert = readFileSync(certPath, 'utf8');
  return { cert, key: readFileSync(keyPath, 'utf8'), trust: cert };
}
