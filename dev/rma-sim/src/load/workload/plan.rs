//! One op: what it asks for, how it must end on a network without faults, and what it does then.

pub(super) mod recorded;

use std::sync::Arc;

use rma_core::{
    addr::{HostAddr, Pid},
    command::{Command, CommandOp, CommandSlotId, RecordedOp, Transfer},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey},
    limits::OP_SIZE_MAX,
    op::{ClassOfService, Moves, OpStatus, OpType},
    outcome::Done,
    region::RegionId,
    time::Instant,
};

use super::{
    RESTLESS, TARGETS, addresses,
    host::{AREA_LEN, Host, draw_span},
    notices_unsent, pid,
    rows::draw_key,
};
use crate::{
    check::board::BOARD_LEN,
    net::{frame::NodeId, sim::Sim},
    prng::{Chance, Prng},
};

/// The ops that software prefers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bias {
    /// The only responder of the ops, if not to anybody.
    pub(crate) responder: Option<NodeId>,
    /// How many ops are bound to fail.
    pub(crate) hopeless: Chance,
    /// How many of those come under an old key, where there is one.
    pub(crate) old_keys: Chance,
    /// How many ops are writes or rekeys.
    pub(crate) mutations: Chance,
    /// How many of those are rekeys.
    pub(crate) rekeys: Chance,
    /// How many of the others are recorded.
    pub(crate) recorded: Chance,
}

/// The purpose of an op that ends as it should.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// Bytes of the target go to the slot's area.
    Read,
    /// Bytes of the target's board go to the slot's area, as it has been since that version.
    Follow { offset: usize, since: usize },
    /// Bytes of the slot's area go to one of the target's, as they come.
    Write { area: usize, offset: usize },
    /// Bytes of the slot's area go to the target's board, all of them or none.
    Board { offset: usize },
    /// A row of the target's gets this key.
    Rekey { of: RowOf, key: RegionKey },
    /// Bytes of the slot's area go into a buffer.
    Send,
    /// An event.
    Notify,
    /// The word at this place is changed.
    Atomic { offset: u64 },
    /// Asks about the op with this number; `None` if that is another process's.
    Settle { of: Option<u64> },
}

/// A row of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOf {
    /// That of its bytes: areas, board and words.
    Region,
    /// That of the receive queue which the region names.
    Queue,
}

/// An op, and how it must end on a network without faults.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// How many commands were issued before it, on all nodes.
    pub(crate) number: u64,
    pub(crate) command: Command,
    /// The initiator's address.
    pub(super) initiator: HostAddr,
    pub(super) pid: Pid,
    pub(crate) expected: OpStatus,
    pub(crate) responder: NodeId,
    /// The life of the responder that it was planned for.
    pub(crate) responder_life: u32,
    /// Its region has changed since: it may be refused for that.
    pub(crate) stale: bool,
    /// When it was planned, by the responder's clock.
    pub(crate) planned_at: Instant,
    /// Notices that the responder had not sent by then.
    pub(crate) notices_unsent: u64,
    /// The responder's epoch and target.
    pub(super) contents: usize,
    pub(super) target: usize,
    pub(super) purpose: Use,
    /// The offset of its data in the slot's area.
    pub(super) area_offset: usize,
    /// The memory that holds its data.
    pub(super) content: Arc<[u8]>,
    /// The offset in `content`.
    pub(super) content_offset: usize,
}

impl Planned {
    /// The bytes that it transfers.
    pub(super) fn data(&self) -> &[u8] {
        let len = match self.purpose {
            // The place of an op that must fail may be elsewhere.
            Use::Read if self.expected != OpStatus::Ok => 0,
            Use::Read => self.command.op.op_size() as usize,
            Use::Follow { .. } | Use::Notify | Use::Atomic { .. } | Use::Settle { .. } => 0,
            Use::Write { .. } | Use::Board { .. } | Use::Rekey { .. } | Use::Send => {
                self.content.len()
            }
        };
        &self.content[self.content_offset..self.content_offset + len]
    }

    /// Whether its target records it.
    pub(crate) const fn is_recorded(&self) -> bool {
        matches!(self.command.op, CommandOp::Recorded { .. })
    }

    /// Whether it consumes a receive.
    pub(crate) const fn consumes_receive(&self) -> bool {
        self.is_recorded()
            && matches!(
                self.command.op.op_type(),
                OpType::Send | OpType::Notify | OpType::WriteWithImm
            )
    }

    /// Whether it changes a board, or reads one.
    pub(super) const fn is_on_board(&self) -> bool {
        matches!(self.purpose, Use::Board { .. } | Use::Follow { .. })
    }

    /// Whether it is recorded, and its bytes land as they come.
    const fn lands_in_parts(&self) -> bool {
        matches!(
            self.command.op,
            CommandOp::Recorded { op: RecordedOp::WriteWithImm { ordered: false, .. }, .. }
        )
    }

    /// Whether it may swap a value into a word that nobody else does.
    pub(super) const fn swaps(&self) -> bool {
        matches!(self.command.op, CommandOp::Recorded { op: RecordedOp::CompareSwap { .. }, .. })
    }

    pub(super) fn set_done(&mut self, known: Option<Done>) {
        if let CommandOp::Recorded { done, .. } = &mut self.command.op {
            *done = known;
        }
    }

    /// A SETTLE that is planned now for an op that went before.
    pub(super) fn as_settle(
        &self,
        sim: &Sim,
        command: Command,
        of: Option<u64>,
        (responder_life, contents): (u32, usize),
    ) -> Self {
        Self {
            command,
            expected: OpStatus::Ok,
            responder_life,
            stale: !sim.is_everywhere(self.responder, command.remote_region),
            planned_at: sim.local_now(self.responder),
            notices_unsent: notices_unsent(sim, self.responder),
            contents,
            purpose: Use::Settle { of },
            area_offset: 0,
            content: Arc::from([]),
            content_offset: 0,
            ..self.clone()
        }
    }
}

/// The next op for `slot` of `node`.
pub(super) fn plan(
    hosts: &[Host],
    sim: &Sim,
    mut prng: Prng,
    (node, slot): (NodeId, u16),
    (bias, value): (Bias, Option<u64>),
) -> Planned {
    let mut extra = prng.fork(2);
    let local = &hosts[node.index()];
    let anybody = NodeId(prng.below(hosts.len() as u64) as u16);
    let responder = bias.responder.unwrap_or(anybody);
    let remote = &hosts[responder.index()];
    let process = local.process_of(slot);
    let ipv4 = prng.chance(Chance::ppm(500_000));
    let (initiator, responder_addr) = addresses(sim, node, responder, ipv4);
    let (is_mutation, is_rekey) = (prng.chance(bias.mutations), prng.chance(bias.rekeys));
    let mut target = prng.below(TARGETS as u64) as usize;
    let free = remote.targets()[target].areas_in_use.iter().position(|in_use| !in_use);
    let is_queue = is_mutation
        && is_rekey
        && extra.chance(bias.recorded)
        && extra.chance(Chance::ppm(400_000));
    let (of, rekeyed) = if is_queue {
        (RowOf::Queue, &remote.queue(RESTLESS).row)
    } else {
        (RowOf::Region, &remote.targets()[RESTLESS].row)
    };
    let op_type = match (is_mutation, is_rekey, free) {
        (true, true, _) if rekeyed.rekeying.is_none() => OpType::Rekey,
        (true, false, Some(_)) => OpType::Write,
        _ => OpType::Read,
    };
    if op_type == OpType::Rekey {
        target = RESTLESS;
    }
    let wanted = &remote.targets()[target];
    let content_len = wanted.content.len() as u64;
    let largest = match op_type.shape().moves {
        Moves::In => content_len.min(OP_SIZE_MAX.into()),
        Moves::Out => OP_SIZE_MAX.into(),
    };
    let (is_whole, some) = (prng.chance(Chance::ppm(250_000)), prng.magnitude(largest));
    let op_size = (if is_whole { largest } else { some }) as u32;
    let slack = AREA_LEN - op_size as usize + 1;
    let [mut area_offset, offset] = [0, 1].map(|_| prng.below(slack as u64) as usize);
    let read_offset = prng.below(content_len.saturating_sub(op_size.into()) + 1);
    let new_key = draw_key(&mut prng);
    let transfer = Transfer {
        op_size,
        remote_offset: read_offset,
        local_region: local.local[process].0,
        local_offset: local.local_offset(slot) + area_offset as u64,
    };
    let (mut remote_region, mut region_key) = (wanted.row.id, &wanted.row.key);
    let (op, purpose, content, content_offset) = match (op_type, free) {
        (OpType::Read | OpType::Write, free)
            if is_mutation && !is_rekey && extra.chance(bias.recorded) =>
        {
            // It may be larger on a board.
            area_offset = area_offset.min(AREA_LEN - BOARD_LEN);
            let local_offset = local.local_offset(slot) + area_offset as u64;
            let transfer = Transfer { local_offset, ..transfer };
            let drawn = recorded::draw(&mut extra, remote, (target, free), transfer, value);
            (remote_region, region_key) = (drawn.region, drawn.key);
            (drawn.op, drawn.purpose, drawn.bytes, 0)
        }
        (OpType::Rekey, _) => {
            (remote_region, region_key) = (rekeyed.id, &rekeyed.key);
            (CommandOp::Rekey(new_key), Use::Rekey { of, key: new_key }, Arc::from([]), 0)
        }
        (OpType::Write, Some(area)) => {
            let mut data = vec![0; op_size as usize];
            prng.fill(&mut data);
            let remote_offset = wanted.area_start(area) + offset as u64;
            let op = CommandOp::Write(Transfer { remote_offset, ..transfer });
            (op, Use::Write { area, offset }, data.into(), 0)
        }
        (OpType::Read, _)
            if let Some(board) = &wanted.board
                && extra.chance(bias.recorded)
                && extra.chance(Chance::ppm(700_000)) =>
        {
            let (offset, op_size) = draw_span(&mut extra, op_size);
            // It may be larger than what the area was to hold.
            area_offset = area_offset.min(AREA_LEN - op_size as usize);
            let transfer = Transfer {
                op_size,
                remote_offset: board.start() + offset as u64,
                local_offset: local.local_offset(slot) + area_offset as u64,
                ..transfer
            };
            let since = board.version();
            (CommandOp::Read(transfer), Use::Follow { offset, since }, Arc::from([]), 0)
        }
        _ => {
            let content = wanted.content.clone();
            (CommandOp::Read(transfer), Use::Read, content, read_offset as usize)
        }
    };
    let op_type = op.op_type();
    let pid = pid(node, process);
    let binding = KeyBinding { initiator, responder: responder_addr, pid, op_type };
    // Whoever uses a new key before all engines have it may be refused, and not for an old one.
    let is_everywhere = sim.is_everywhere(responder, remote_region);
    let planned = Planned {
        number: 0,
        initiator,
        pid,
        command: Command {
            slot: CommandSlotId(slot),
            class: prng.choose(&ClassOfService::ALL),
            responder: responder_addr,
            remote_region,
            key: region_key.derive(&binding),
            op,
        },
        expected: OpStatus::Ok,
        responder,
        responder_life: remote.life,
        stale: !is_everywhere,
        planned_at: sim.local_now(responder),
        notices_unsent: notices_unsent(sim, responder),
        contents: remote.contents,
        target,
        purpose,
        area_offset,
        content,
        content_offset,
    };
    if prng.chance(bias.hopeless) {
        let flaw = prng.choose(&Flaw::ALL);
        let flaw = if prng.chance(bias.old_keys) { Flaw::OldKey } else { flaw };
        let flaw = if is_everywhere || flaw != Flaw::OldKey { flaw } else { Flaw::RandomKey };
        spoil(&mut prng, flaw, planned, local, remote, &binding)
    } else {
        planned
    }
}

/// A flaw of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// A key that nobody derived.
    RandomKey,
    /// The key of another process of the initiator.
    KeyOfAnotherProcess,
    /// The key of another host, as if that had leaked it.
    KeyOfAnotherHost,
    /// The key for another op type: who may read may not write with it, and so on.
    KeyForAnotherOp,
    /// A key that the region had before. An op on a region that never had another gets the flaw
    /// [`Flaw::RegionGone`].
    OldKey,
    /// A region that the responder has deregistered.
    RegionGone,
    /// Another region of the responder's than the key is for.
    AnotherRegion,
    /// A region that permits nothing, under its right key.
    NotPermitted,
    /// Bytes beyond the end of the remote region.
    RemoteOutOfBounds,
    /// A size that no op may have.
    WrongSize,
    /// A local region that there is not.
    NoLocalRegion,
    /// The local region of another process of the initiator.
    LocalRegionOfAnotherProcess,
    /// Bytes beyond the end of the local region.
    LocalOutOfBounds,
}

impl Flaw {
    /// Whether it is about what the command says of sizes and places.
    const fn is_of_places(self) -> bool {
        matches!(
            self,
            Self::RemoteOutOfBounds
                | Self::WrongSize
                | Self::NoLocalRegion
                | Self::LocalRegionOfAnotherProcess
                | Self::LocalOutOfBounds
        )
    }

    /// All of them, to draw one. The remote bounds have two places, so that they are drawn twice as
    /// often. The order is part of what a seed means.
    const ALL: [Self; 14] = [
        Self::RandomKey,
        Self::KeyOfAnotherProcess,
        Self::KeyOfAnotherHost,
        Self::KeyForAnotherOp,
        Self::OldKey,
        Self::RegionGone,
        Self::AnotherRegion,
        Self::NotPermitted,
        Self::RemoteOutOfBounds,
        Self::RemoteOutOfBounds,
        Self::WrongSize,
        Self::NoLocalRegion,
        Self::LocalRegionOfAnotherProcess,
        Self::LocalOutOfBounds,
    ];
}

/// Gives `planned` a flaw, and says how it must end with it. A rekey has no bounds and no local
/// region: one with such a flaw goes to a region that nobody may rekey.
fn spoil(
    prng: &mut Prng,
    flaw: Flaw,
    planned: Planned,
    local: &Host,
    remote: &Host,
    binding: &KeyBinding,
) -> Planned {
    let is_recorded = planned.is_recorded() && flaw.is_of_places() && !planned.lands_in_parts();
    if is_recorded {
        return recorded::spoil(prng, flaw, planned, local, remote, binding);
    }
    let mut spoiled = planned;
    let target = &remote.targets()[spoiled.target];
    let command = &mut spoiled.command;
    spoiled.expected = OpStatus::RemoteAuthenticationFailure;
    let transfer = match &mut command.op {
        CommandOp::Read(transfer) | CommandOp::Write(transfer) => Some(transfer),
        CommandOp::Recorded {
            op: RecordedOp::WriteWithImm { transfer, ordered: false, .. },
            ..
        } => Some(transfer),
        CommandOp::Rekey(_) | CommandOp::Recorded { .. } | CommandOp::Settle { .. } => None,
    };
    match (flaw, transfer) {
        (Flaw::RandomKey, _) => {
            let mut random = [0; 16];
            prng.fill(&mut random);
            command.key = DerivedRegionKey::from_bytes(random);
        }
        (Flaw::KeyOfAnotherProcess, _) => {
            let pid = Pid(binding.pid.0 ^ 1);
            command.key = target.row.key.derive(&KeyBinding { pid, ..*binding });
        }
        (Flaw::KeyOfAnotherHost, _) => {
            let initiator = HostAddr::from_octets([0xfd; 16]);
            command.key = target.row.key.derive(&KeyBinding { initiator, ..*binding });
        }
        (Flaw::KeyForAnotherOp, _) => {
            let other = OpType::ALL.into_iter().find(|&other| other != binding.op_type);
            let op_type = other.expect("there are several");
            command.key = target.row.key.derive(&KeyBinding { op_type, ..*binding });
        }
        (Flaw::OldKey, _) => match &target.row.old_key {
            Some(old_key) => command.key = old_key.derive(binding),
            None => command.remote_region = remote.stale,
        },
        (Flaw::RegionGone, _) => command.remote_region = remote.stale,
        (Flaw::AnotherRegion, _) => {
            command.remote_region = remote.targets()[(spoiled.target + 1) % TARGETS].row.id
        }
        (Flaw::NotPermitted, _) => {
            command.remote_region = remote.forbidden.row.id;
            command.key = remote.forbidden.row.key.derive(binding);
            spoiled.expected = OpStatus::RemotePermissionDenied;
        }
        (Flaw::RemoteOutOfBounds, Some(transfer)) => {
            let (len, size) = (target.len(), u64::from(transfer.op_size));
            let beyond = [len, len - size + 1, u64::MAX, u64::MAX - size + 1];
            transfer.remote_offset = prng.choose(&beyond);
            spoiled.expected = OpStatus::RemoteOutOfBounds;
        }
        (Flaw::WrongSize, Some(transfer)) => {
            transfer.op_size = prng.choose(&[0, OP_SIZE_MAX + 1, u32::MAX]);
            spoiled.expected = OpStatus::InvalidCommand;
        }
        (Flaw::NoLocalRegion, Some(transfer)) => {
            transfer.local_region = RegionId::from_bits(u32::MAX);
            spoiled.expected = OpStatus::InvalidCommand;
        }
        (Flaw::LocalRegionOfAnotherProcess, Some(transfer)) => {
            transfer.local_region = local.local[1 - local.process_of(command.slot.0)].0;
            spoiled.expected = OpStatus::InvalidCommand;
        }
        (Flaw::LocalOutOfBounds, Some(transfer)) => {
            let size = u64::from(transfer.op_size);
            let (_, memory) = &local.local[local.process_of(command.slot.0)];
            let beyond = [memory.len() as u64 - size + 1, u64::MAX, u64::MAX - size + 1];
            transfer.local_offset = prng.choose(&beyond);
            spoiled.expected = OpStatus::InvalidCommand;
        }
        (
            Flaw::RemoteOutOfBounds
            | Flaw::WrongSize
            | Flaw::NoLocalRegion
            | Flaw::LocalRegionOfAnotherProcess
            | Flaw::LocalOutOfBounds,
            None,
        ) => {
            let other = &remote.targets()[1 - RESTLESS];
            command.remote_region = other.row.id;
            command.key = other.row.key.derive(binding);
            spoiled.expected = OpStatus::RemotePermissionDenied;
        }
    }
    spoiled
}
