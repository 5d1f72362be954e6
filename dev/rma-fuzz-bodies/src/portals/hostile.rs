//! An application that has its rings' memory, and uses it.

use core::ops::Range;
use std::sync::Arc;

use rma_core::{
    addr::{HostAddr, Pid},
    command::{Command, CommandOp, CommandSlotId, Completion, Transfer},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey, RegionKeySchedule},
    limits::OP_SIZE_MAX,
    op::ClassOfService,
    portal::{PortalMemory, PortalPort},
    region::RegionId,
};
use rma_shm::{Line, Mapping, RingMemory};

use super::{CONSTANT_LEN, HOSTILE_KEY};
use crate::script::{Script, hostile_index};

/// Commands that an engine may take from one portal in one turn.
const COMMANDS_PER_TURN: u32 = 32;

/// The names of a process and of its peers. Survives the process.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) slots: Range<u16>,
    pub(super) pid: Pid,
    /// Its host and the other.
    pub(super) addresses: [HostAddr; 2],
    /// Its own regions there.
    pub(super) regions: [RegionId; 2],
    /// Regions of somebody else there.
    pub(super) victims: [RegionId; 2],
}

pub(super) struct Hostile {
    pub(super) identity: Identity,
    commands: RingMemory,
    completions: RingMemory,
    /// Completions that the engine has given, as an index.
    given: u32,
    /// Commands that the engine has taken, as an index.
    taken: u32,
    /// Of these, the ones that led to an op and have no completion yet.
    outstanding: u32,
}

/// The content of the rings before a turn.
pub(super) struct Before {
    head: u32,
    tail: u32,
}

impl Hostile {
    /// A new process, and the engine's end of its portal.
    pub(super) fn start(identity: Identity, first: u32) -> (PortalPort, Self) {
        let slots = identity.slots.clone();
        let count = slots.len() as u16;
        let mapping = Arc::new(Mapping::heap(PortalMemory::footprint(count)));
        let memory = PortalMemory::format(&mapping, count).expect("a mapping of its footprint");
        let (commands, completions) = (memory.commands().clone(), memory.completions().clone());
        for ring in [&commands, &completions] {
            ring.set_tail(first);
            ring.set_head(first);
        }
        let port = memory.into_port(slots);
        let outstanding = 0;
        let (given, taken) = (first, first);
        (port, Self { identity, commands, completions, given, taken, outstanding })
    }

    pub(super) const fn is_settled(&self) -> bool {
        self.outstanding == 0
    }

    pub(super) fn step(&self, step: u8, script: &mut Script<'_>) {
        let Self { commands, completions, .. } = self;
        match step {
            4 => commands.set_tail(hostile_index(commands.tail(), script)),
            5 => commands.set_head(hostile_index(commands.head(), script)),
            6 => completions.set_head(hostile_index(completions.head(), script)),
            7 => completions.set_tail(hostile_index(completions.tail(), script)),
            8 | 9 => self.publish(&self.command(script).to_line()),
            10 => {
                self.publish(&Line(core::array::from_fn(|_| {
                    script.take(8).iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
                })));
            }
            11 => {
                let (index, word, shift) = (script.number(), script.number(), script.number());
                commands.set_word(index as u32, word, script.wide() << (shift % 64));
            }
            12 => {
                let (index, word) = (script.number() as u32, script.number());
                completions.set_word(index, word, script.wide());
            }
            // As an honest application that has taken all completions would.
            _ => completions.set_head(completions.tail()),
        }
    }

    /// Whether or not there is room.
    fn publish(&self, line: &Line) {
        self.commands.set_line(self.commands.tail(), line);
        self.commands.set_tail(self.commands.tail().wrapping_add(1));
    }

    /// A command that is mostly right.
    fn command(&self, script: &mut Script<'_>) -> Command {
        let Identity { slots, pid, addresses, regions, victims } = &self.identity;
        let flags = script.number();
        // One past its own is somebody else's, or nobody's.
        let slot = script.number() as u16 % (slots.len() as u16 + 1);
        let own_local = if flags & 0x10 == 0 { regions } else { victims };
        let transfer = Transfer {
            op_size: script.wide() as u32 % (OP_SIZE_MAX + 2),
            remote_offset: script.wide(),
            local_region: own_local[0],
            local_offset: CONSTANT_LEN + u64::from(slot) * u64::from(OP_SIZE_MAX),
        };
        let op = match flags & 3 {
            0 | 1 => CommandOp::Read(transfer),
            2 => CommandOp::Write(transfer),
            _ => CommandOp::Rekey(hostile_key(transfer.op_size as u8)),
        };
        let nobody: HostAddr = "198.51.100.7".parse().expect("an address");
        let (responder, host) = match flags >> 2 & 3 {
            0 | 1 => (addresses[1], 1),
            2 => (addresses[0], 0),
            _ => (nobody, 1),
        };
        let (initiator, op_type) = (addresses[0], op.op_type());
        let binding = KeyBinding { initiator, responder, pid: *pid, op_type };
        let key = RegionKeySchedule::new(&hostile_key((flags >> 6 & 1) as u8)).derive(&binding);
        let wrong = transfer.op_size == 13;
        Command {
            slot: CommandSlotId(slots.start + slot),
            class: ClassOfService::ALL[flags >> 7],
            responder,
            remote_region: (if flags & 0x20 == 0 { regions } else { victims })[host],
            key: if wrong { DerivedRegionKey::from_bytes([1; 16]) } else { key },
            op,
        }
    }

    /// To be called before a turn.
    pub(super) fn before(&self) -> Before {
        // The engine must not believe what it has written there itself. Another value shows when it
        // writes again.
        let would_be = self.commands.head().wrapping_sub(self.taken);
        if (1..=2 * COMMANDS_PER_TURN).contains(&would_be) {
            self.commands.set_head(self.taken);
        }
        Before { head: self.commands.head(), tail: self.completions.tail() }
    }

    /// Holds what the engine wrote in a turn against what it counted.
    pub(super) fn account(&mut self, before: &Before, done: u32, refused: u32) {
        let entries = self.identity.slots.len().next_power_of_two() as u32;
        let head = self.commands.head();
        if head != before.head {
            let lines = head.wrapping_sub(self.taken);
            assert!((1..=2 * COMMANDS_PER_TURN).contains(&lines), "took {lines} lines");
            let taken = self.commands_in(lines);
            assert!((1..=COMMANDS_PER_TURN).contains(&taken), "took {taken} commands");
            self.taken = head;
            self.outstanding += taken;
        }
        self.outstanding -= refused;
        assert!(done <= self.outstanding && self.outstanding <= entries);
        self.outstanding -= done;
        if done == 0 {
            assert_eq!(self.completions.tail(), before.tail, "a completion of nothing");
            return;
        }
        for index in 0..done {
            let line = self.completions.line(self.given.wrapping_add(index));
            let completion = Completion::from_line(&line).expect("a defined status");
            let own = self.identity.slots.contains(&completion.slot.0);
            assert!(own, "somebody else's completion");
        }
        self.given = self.given.wrapping_add(done);
        assert_eq!(self.completions.tail(), self.given, "a completion was lost or doubled");
    }

    /// How many commands the engine has made of the next `lines` lines, which nobody has changed
    /// since: what looks like the first line of two takes the next one along, if there is one.
    fn commands_in(&self, lines: u32) -> u32 {
        let (mut commands, mut line) = (0, 0);
        while line < lines {
            let first = self.commands.line(self.taken.wrapping_add(line));
            line += if first.0[0] >> 16 & FIRST_OF_TWO != 0 { 2 } else { 1 };
            commands += 1;
        }
        commands
    }

    /// Nothing more is published, but for what the engine has seen already.
    pub(super) fn stop(&self) {
        self.commands.set_tail(self.taken);
    }
}

/// The bit that the op type has in a command with a second line.
const FIRST_OF_TWO: u64 = 0x40;

/// One of the keys that its regions ever have.
fn hostile_key(which: u8) -> RegionKey {
    RegionKey::from_bytes([HOSTILE_KEY + which % 2; 16])
}
