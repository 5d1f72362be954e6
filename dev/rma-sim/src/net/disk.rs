//! The disk that a simulated host keeps the high-water mark of its message counter on: it forgets
//! what was not synced when the power goes, and the host may end at any step of a reservation.
//!
//! Invariant: what was synced, and then the directory, is there after any crash.

use core::cell::RefCell;
use std::io;

use rma_core::counter_mark::{Disk, render};

use crate::prng::Prng;

/// A directory with two names in it, and the page cache in front of it.
#[derive(Debug)]
pub(crate) struct MarkDisk(RefCell<State>);

#[derive(Debug)]
struct State {
    names: Names,
    durable_names: Names,
    files: Vec<File>,
    /// Steps until the host that is reserving ends. `None`: it lives.
    steps_left: Option<u32>,
}

/// The file of each of the two names.
#[derive(Clone, Copy, Debug)]
struct Names {
    mark: usize,
    temporary: Option<usize>,
}

/// Contents as a process reads them, and what of them has been synced.
#[derive(Debug)]
struct File {
    contents: Vec<u8>,
    durable: Vec<u8>,
}

impl MarkDisk {
    /// A disk on which values below `mark` are gone.
    pub(crate) fn new(mark: u64) -> Self {
        let names = Names { mark: 0, temporary: None };
        let files = vec![File { contents: render(mark), durable: render(mark) }];
        Self(RefCell::new(State { names, durable_names: names, files, steps_left: None }))
    }

    /// The host ends after so many steps; `None`: it lives.
    pub(crate) fn set_steps_left(&self, steps: Option<u32>) {
        self.0.borrow_mut().steps_left = steps;
    }

    /// The power goes: of each thing that was not synced some part, all or nothing is left.
    pub(crate) fn cut_power(&self, prng: &mut Prng) {
        let mut state = self.0.borrow_mut();
        if prng.below(2) == 0 {
            state.names = state.durable_names;
        }
        state.durable_names = state.names;
        for file in &mut state.files {
            if file.contents != file.durable {
                let written = prng.below(file.contents.len() as u64 + 1) as usize;
                let part = file.contents[..written].to_vec();
                let all = file.contents.clone();
                let left = [&file.durable, &part, &all][prng.below(3) as usize].clone();
                *file = File { contents: left.clone(), durable: left };
            }
        }
    }

    fn step<T>(&self, step: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        let mut state = self.0.borrow_mut();
        if let Some(left) = &mut state.steps_left {
            *left = left.checked_sub(1).ok_or_else(|| io::Error::other("its host has ended"))?;
        }
        Ok(step(&mut state))
    }
}

impl Disk for MarkDisk {
    fn read_mark(&self) -> io::Result<Option<Vec<u8>>> {
        self.step(|state| Some(state.files[state.names.mark].contents.clone()))
    }

    fn write_temporary(&self, contents: &[u8]) -> io::Result<()> {
        self.step(|state| {
            let file = *state.names.temporary.get_or_insert_with(|| {
                state.files.push(File { contents: Vec::new(), durable: Vec::new() });
                state.files.len() - 1
            });
            state.files[file].contents = contents.to_vec();
        })
    }

    fn sync_temporary(&self) -> io::Result<()> {
        self.step(|state| {
            if let Some(file) = state.names.temporary {
                let file = &mut state.files[file];
                file.durable.clone_from(&file.contents);
            }
        })
    }

    fn rename_to_mark(&self) -> io::Result<()> {
        self.step(|state| {
            if let Some(file) = state.names.temporary.take() {
                state.names.mark = file;
            }
        })
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.step(|state| state.durable_names = state.names)
    }
}
