//! Processes: [`Process`] remembers where a thing was made, [`Worker`] is a thread that belongs to
//! one.
//!
//! After `fork` a child has a copy of its parent's memory and descriptors, and none of its threads.
//! So an engine, a lock that another thread held, a wake-up that a descriptor has: all of that is
//! the parent's. Whoever has such a thing asks [`Process::check`] first, and does nothing in a
//! child: it neither waits, nor wakes, nor reads what was for the parent.
//!
//! What tells is one word on a page that the kernel gives to a child as zeros (`MADV_WIPEONFORK`).
//! Looking is a load of a word that nobody writes, without a system call. It holds for children
//! that no library knows of (`clone`, `_Fork`), where handlers of `pthread_atfork` would not run.
//! A kernel that does not know the advice tells no child from its parent.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use std::{
    io, mem,
    sync::OnceLock,
    thread::{self, JoinHandle, Thread},
};

use rustix::mm::{Advice, MapFlags, ProtFlags};
use thiserror::Error;

use crate::mapping::PAGE_SIZE;

/// Something of a process is used in a child that it forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "this process was forked from the one that opened the host, and has no engine: open the host after the fork, in the \
     process that uses it"
)]
pub struct Forked;

/// The process that made something.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// The process's mark on the page.
    mark: u64,
    word: &'static AtomicU64,
}

impl Process {
    /// The one that runs.
    #[must_use]
    pub fn this() -> Self {
        static WORD: OnceLock<&AtomicU64> = OnceLock::new();
        // A child goes on with its parent's count, so no mark is that of any ancestor.
        static MARKS: AtomicU64 = AtomicU64::new(0);
        let word = *WORD.get_or_init(wiped_on_fork);
        let mark = match word.load(Acquire) {
            0 => {
                let next = MARKS.fetch_add(1, Relaxed) + 1;
                word.compare_exchange(0, next, Acquire, Acquire).map_or_else(|it| it, |_| next)
            }
            mark => mark,
        };
        Self { mark, word }
    }

    /// Whether it is the one that runs.
    #[inline]
    #[must_use]
    pub fn is_this(&self) -> bool {
        self.word.load(Relaxed) == self.mark
    }

    /// An error if it is not the one that runs.
    ///
    /// # Errors
    /// [`Forked`].
    #[inline]
    pub fn check(&self) -> Result<(), Forked> {
        if self.is_this() { Ok(()) } else { Err(Forked) }
    }
}

/// A word that is zero in each process that has not written to it.
fn wiped_on_fork() -> &'static AtomicU64 {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the kernel chooses the place, so nothing that is there already is replaced.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), PAGE_SIZE, protection, flags) };
    let Ok(page) = mapped else { return Box::leak(Box::default()) };
    // SAFETY: the range is the mapping made above, which nobody uses yet; the advice changes what a
    // child finds there. A kernel without it refuses, and then children are not told apart.
    let _ = unsafe { rustix::mm::madvise(page, PAGE_SIZE, Advice::LinuxWipeOnFork) };
    // SAFETY: the page is aligned, zeroed, readable and writable, and never unmapped; this is the
    // one reference that is made of it.
    unsafe { AtomicU64::from_ptr(page.cast()) }
}

/// A thread of this process, to be joined. A child that inherits the handle has no such thread: it
/// neither joins nor detaches it.
#[derive(Debug)]
pub struct Worker {
    handle: Option<JoinHandle<()>>,
    process: Process,
}

impl Worker {
    /// Starts a thread of this name.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let handle = thread::Builder::new().name(name.into()).spawn(body)?;
        Ok(Self { handle: Some(handle), process: Process::this() })
    }

    /// The thread, to wake it.
    ///
    /// # Panics
    /// Never: the handle is there until it is joined.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        self.handle.as_ref().expect("there until it is joined").thread()
    }

    /// Whether it is a thread of the process that runs.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.process.is_this()
    }

    /// Waits until it has ended. In a child there is nothing to wait for.
    pub fn join(mut self) {
        if self.is_ours()
            && let Some(handle) = self.handle.take()
        {
            // Fails if it panicked: that was printed then.
            let _ = handle.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.is_ours() {
            mem::forget(self.handle.take());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_runs_is_the_one_that_made_it() {
        let (one, other) = (Process::this(), Process::this());
        assert!(one.is_this() && other.is_this());
        assert_eq!((one.check(), one.mark), (Ok(()), other.mark));
    }

    #[test]
    fn a_child_finds_no_mark_of_its_parent_on_the_page() {
        let process = Process { mark: 7, word: Box::leak(Box::new(AtomicU64::new(7))) };
        assert_eq!(process.check(), Ok(()));
        process.word.store(0, Relaxed);
        assert_eq!(process.check(), Err(Forked));
        process.word.store(8, Relaxed);
        assert_eq!(process.check(), Err(Forked), "also once the child has made something");
    }

    #[test]
    fn a_thread_is_joined_by_the_process_that_started_it_and_forgotten_by_others() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let body = move || sender.send(()).unwrap();
        Worker::start("worker", body).unwrap().join();
        assert_eq!(receiver.try_recv(), Ok(()), "it has ended");
        let elsewhere = Process { mark: 1, word: Box::leak(Box::default()) };
        let mut inherited = Worker::start("worker", thread::park).unwrap();
        inherited.process = elsewhere;
        let thread = inherited.thread().clone();
        inherited.join();
        thread.unpark();
    }
}
