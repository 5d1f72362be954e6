//! A file of pcapng blocks that is whole whatever happens to its writer.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    path::Path,
};

/// The shortest block: its kind, its length, and its length again.
const BLOCK_LEN_MIN: usize = 12;

/// The kind of a block that is a packet.
const ENHANCED_PACKET: u32 = 6;

/// A file that takes whole blocks with each call, and keeps whole ones where it cannot take all:
/// the disk is full, or a limit is reached.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    /// Octets of whole blocks.
    len: u64,
}

impl WholeFile {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// Of the system.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::create(path)?, len: 0 })
    }
}

impl Write for WholeFile {
    /// Takes all of it, or fails. What was taken of it then is whole blocks.
    fn write(&mut self, blocks: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < blocks.len() {
            let error = match self.file.write(&blocks[written..]) {
                Ok(0) => ErrorKind::WriteZero.into(),
                Ok(count) => {
                    written += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            self.len += whole_blocks(&blocks[..written]) as u64;
            // Of a pipe nothing can be taken back.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        self.len += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// How many of `octets` are whole blocks.
#[must_use]
pub fn whole_blocks(octets: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(len) = octets.get(whole + 4..whole + 8) {
        let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
        if len < BLOCK_LEN_MIN || octets.len() - whole < len {
            break;
        }
        whole += len;
    }
    whole
}

/// How many packets there are among these blocks, which are whole.
#[must_use]
pub fn packets_in(mut blocks: &[u8]) -> u64 {
    let mut packets = 0;
    while let Some((head, _)) = blocks.split_first_chunk::<8>() {
        let [k0, k1, k2, k3, l0, l1, l2, l3] = *head;
        packets += u64::from(u32::from_le_bytes([k0, k1, k2, k3]) == ENHANCED_PACKET);
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        blocks = blocks.get(len.max(BLOCK_LEN_MIN)..).unwrap_or_default();
    }
    packets
}
