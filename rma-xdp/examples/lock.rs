//! A lock with a lease: COMPARE_SWAP takes it, and whoever has seen the same holder for as long as
//! a lease may take it over. Also what to do when an op times out: ask what became of it, and never
//! just repeat it.
//!
//! A lease needs clocks that run at the same rate, and what the lock protects has to refuse a
//! holder whose lease has run out meanwhile: that is what the word is for, which only grows.

use core::time::Duration;

use rma_xdp::{
    Completion, Grant, Host, HostConfig, OpStatus, OpType, Permissions, Pid, Portal,
    ops::{OpName, Verdict},
    time::{Clock, TscClock},
};

/// For how long a holder has the lock, from before it asked for it.
const LEASE: Duration = Duration::from_millis(50);

/// Whether somebody has the lock: the word is odd.
const fn is_held(word: u64) -> bool {
    word % 2 == 1
}

/// Replaces the word if it is `expected`. What was there before, or that nobody can tell.
fn compare_swap(
    portal: &mut Portal,
    grant: &Grant,
    expected: u64,
    new: u64,
) -> Result<Option<u64>, Box<dyn std::error::Error>> {
    loop {
        portal.compare_swap(grant, 0, expected, new)?;
        let ended = portal.wait()?;
        match (ended.status, ended.name()) {
            (OpStatus::Ok, _) => return Ok(ended.result()),
            // It may have been applied, and never will be. Its target knows which.
            (OpStatus::Timeout, Some(name)) if ended.may_have_changed() => {
                let told = settle(portal, grant, name)?;
                match told.verdict() {
                    Some(Verdict::Applied) => return Ok(told.result()),
                    Some(Verdict::NotApplied) => {}
                    // It was asked later than it keeps records. The word says who has the lock.
                    Some(Verdict::Forgotten) | None => return Ok(None),
                }
            }
            // Not applied, and it never will be: it may be issued again.
            (OpStatus::Timeout | OpStatus::Nack | OpStatus::DispatchTimeout, _) => {}
            (other, _) => return Err(other.name().into()),
        }
    }
}

/// Asks what became of an op until there is an answer. A program gives up some time.
fn settle(
    portal: &mut Portal,
    grant: &Grant,
    name: OpName,
) -> Result<Completion, Box<dyn std::error::Error>> {
    loop {
        portal.settle(grant, name)?;
        let told = portal.wait()?;
        if told.status == OpStatus::Ok {
            return Ok(told);
        }
    }
}

/// Waits for the lock. Returns the word of this holder.
fn lock(portal: &mut Portal, grant: &Grant) -> Result<u64, Box<dyn std::error::Error>> {
    let clock = TscClock::new();
    let (mut seen, mut since) = (0, clock.now());
    loop {
        let may_take = !is_held(seen) || clock.now().since(since) >= LEASE;
        // To swap a word for itself is to read it.
        let next = match (may_take, is_held(seen)) {
            (false, _) => seen,
            (true, false) => seen + 1,
            (true, true) => seen + 2,
        };
        // If nobody can tell what was there, this host may have the lock. It does not act on it,
        // and waits as if another one had it.
        let found = compare_swap(portal, grant, seen, next)?.unwrap_or(next);
        if may_take && found == seen {
            return Ok(next);
        }
        if found != seen {
            (seen, since) = (found, clock.now());
        } else {
            std::thread::park_timeout(LEASE / 50);
        }
    }
}

/// Gives the lock back, unless somebody has taken it over.
fn unlock(portal: &mut Portal, grant: &Grant, held: u64) -> Result<(), Box<dyn std::error::Error>> {
    compare_swap(portal, grant, held, held + 1)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let owner = Host::open(HostConfig::udp([127, 0, 0, 41]))?;
    let word = owner.register(8, Permissions::ATOMIC)?;
    let open = |number: u8| {
        let (address, pid) = ([127, 0, 0, 41 + number], Pid(number.into()));
        let host = Host::open(HostConfig::udp(address).with(|it| it.pid = pid))?;
        let grant = owner.grant(&word, address.into(), pid, OpType::CompareSwap)?;
        let portal = host.portal(1)?;
        Ok::<_, rma_xdp::HostError>((host, grant, portal))
    };
    let (_first, first_grant, mut first) = open(1)?;
    let (_second, second_grant, mut second) = open(2)?;

    let held = lock(&mut first, &first_grant)?;
    println!("the first host has the lock: {held}");
    unlock(&mut first, &first_grant, held)?;
    let held = lock(&mut second, &second_grant)?;
    println!("the second has it now: {held}");

    // The second forgets to give it back. Its lease runs out.
    let taken = lock(&mut first, &first_grant)?;
    println!("the first has taken it over: {taken}");
    unlock(&mut second, &second_grant, held)?; // too late, and does nothing
    assert_eq!((held, taken, word.load(0)?), (3, 5, 5));
    Ok(())
}
