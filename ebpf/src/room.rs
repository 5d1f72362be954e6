//! How much of a queue's receive ring the redirected frames may take: never all of it.
//!
//! A ring that is full, or chunks that are all in it, stop more than our frames. A driver in
//! zero-copy mode has no chunk left for what passes, or waits for room: the machine is off the
//! network on that queue until the process reads again. So the program stops before that, and needs
//! to know what has been read.
//!
//! It cannot count frames in and frames out: what is redirected may be lost behind it, and then the
//! two counts would drift apart, and shut the queue for good. So the reader tells something else:
//! how often it has *emptied* the ring, which is each time that it has read all that it saw there.
//! It sees afresh only after it has emptied what it saw before. Hence what was redirected while the
//! number was N has been read, or was lost, when it is N + 2: until then it is counted, and not
//! after. An error cannot outlive two of the reader's turns. (One that sleeps while all that comes
//! is lost takes no turn: as many frames as there is room for, and it must look by itself, which an
//! engine does every second.)
//!
//! Frames of the packet burst that is under way are not in the ring yet, and may be taken for read:
//! one burst (64 frames) at most, which the limit leaves room for.

/// Chunks that are redirected without a look at the reader's number, which is in another
/// processor's cache: more of them, and what was read is known later; fewer, and each frame waits
/// for that cache. A quarter of the limit, if that is less: what came between two looks counts as
/// unread at the second, and must leave room for a frame that wakes a reader.
const UNSEEN_MAX: u32 = 64;

/// The chunks of a queue that may be unread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// The reader's number at the last look.
    emptied: u32,
    /// Redirected, and the number has not changed since.
    newer: u32,
    /// Redirected, and the number has gone up by one since.
    older: u32,
    /// Redirected since the last look.
    unseen: u32,
}

impl Room {
    /// Counts a frame of so many chunks if there is room for it among `chunks_max`. `emptied` asks
    /// for the reader's number, which wraps.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        chunks: u32,
        chunks_max: u32,
        emptied: impl FnOnce() -> u32,
    ) -> bool {
        if self.unseen >= UNSEEN_MAX.min(chunks_max / 4) || self.unread() + chunks > chunks_max {
            let emptied = emptied();
            self.older = match emptied.wrapping_sub(self.emptied) {
                0 => self.older,
                1 => self.newer,
                _ => 0,
            };
            if emptied != self.emptied {
                self.newer = 0;
            }
            // When exactly they came is not known: not after now.
            self.newer += self.unseen;
            self.unseen = 0;
            self.emptied = emptied;
        }
        let has_room = self.unread() + chunks <= chunks_max;
        if has_room {
            self.unseen += chunks;
        }
        has_room
    }

    #[inline(always)]
    fn unread(&self) -> u32 {
        self.newer + self.older + self.unseen
    }
}
