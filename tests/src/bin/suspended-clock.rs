//! A clock across an hour in which the machine was suspended, as far as its kernel tells: the
//! process enters a time namespace whose CLOCK_BOOTTIME is an hour ahead. Needs root, and a process
//! with one thread.
//!
//! Its standard output is what the clock said afterwards, in whole seconds.

use std::{error::Error, fs, fs::File, os::fd::AsFd};

use rma_xdp::time::{Clock, TscClock};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

fn main() -> Result<(), Box<dyn Error>> {
    let clock = TscClock::new();
    let before = clock.now();
    // SAFETY: a time namespace is for children, until it is entered below. No descriptors are
    // unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWTIME)? };
    fs::write("/proc/self/timens_offsets", "boottime 3600 0")?;
    let namespace = File::open("/proc/self/ns/time_for_children")?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Time))?;
    // Threads are stopped for longer than this whenever a machine is suspended.
    let wait = std::time::Duration::from_millis(1);
    std::thread::park_timeout(wait);
    println!("{}", clock.now().since(before).as_secs());
    Ok(())
}
