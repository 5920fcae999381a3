/**
 * File systems whose locks and shared memory reach other hosts badly or not at all, by the `f_type` of statfs(2): the
 * magic numbers of linux/magic.h and of the remote ones in coreutils' stat.c (9.4). FUSE hides what is behind it; most
 * of it is remote (sshfs, s3fs, glusterfs), and all of it is refused.
 */
const NETWORK_FILE_SYSTEMS: ReadonlyMap<number, string> = new Map([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x564c, 'NCP'],
  [0x5346414f, 'AFS'],
  [0x6b414653, 'AFS'],
  [0x73757245, 'Coda'],
  [0x00c36400, 'CephFS'],
  [0x0bd00bd0, 'Lustre'],
  [0x47504653, 'GPFS'],
  [0x19830326, 'BeeGFS'],
  [0xaad7aaea, 'PanFS'],
  [0x013111a8, 'IBRIX'],
  [0xbeefdead, 'StorNext'],
  [0x61636673, 'ACFS'],
  [0x20030528, 'OrangeFS'],
  [0x7461636f, 'OCFS2'],
  [0x01161970, 'GFS2'],
  [0x01021997, '9p'],
  [0x65735546, 'FUSE'],
  [0x786f4256, 'VirtualBox shared folder'],
  [0xbacbacbc, 'VMware shared folder'],
  [0x7c7c6673, 'Parallels shared folder'],
]);

/** The name of a network file system by its `f_type`, null for any other. */
export const networkFileSystem = (type: number | bigint): string | null =>
  NETWORK_FILE_SYSTEMS.get(Number(BigInt.asUintN(32, BigInt(type)))) ?? null;
