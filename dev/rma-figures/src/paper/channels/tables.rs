//! Tables 1 and 2: features of transports, ours as a row; and what channels offer and cost, with
//! what they need of the transport.

use std::collections::BTreeSet;

use rma_bench::drawing::Picture;
use rma_contract::measured::COLUMNS;
use rma_core::region::Permissions;
use rma_xdp::{OpType, channel::Kind, ops::OP_SIZE_MAX};

use crate::{
    paper::{
        claims::Claim,
        figure::{About, Figure, FigureFailed, Kind as FigureKind},
        points::{Points, Table},
        run::Run,
    },
    simulated::{Line, Table2},
};

/// Table 1.
#[derive(Debug)]
pub(super) struct Transports;

/// The paper's rows.
const TRANSPORTS: [[&str; 4]; 3] = [
    ["InfiniBand and RoCE", "Send, Write, Read, Atomic", "in order", "several packets"],
    ["EFA", "Send, Read", "out of order", "one packet"],
    ["1RMA (the paper's)", "Read, Write (as a request to read)", "out of order", "one packet"],
];

fn table(title: &str, heads: &[&str], rows: Vec<Vec<String>>) -> Table {
    let heads = heads.iter().map(|it| (*it).to_owned()).collect();
    Table { title: title.to_owned(), heads, rows }
}

fn words(names: impl IntoIterator<Item = String>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn names(op_types: &[OpType]) -> String {
    words(op_types.iter().map(|it| it.shape().name.to_owned()))
}

/// The permissions that ops of these types ask of memory.
fn permissions(op_types: &[OpType]) -> String {
    let all = [
        ("read", Permissions::READ),
        ("write", Permissions::WRITE),
        ("send", Permissions::SEND),
        ("notify", Permissions::NOTIFY),
        ("atomic", Permissions::ATOMIC),
    ];
    let asked = |of: Permissions| op_types.iter().any(|it| it.shape().permission.contains(of));
    words(all.into_iter().filter(|it| asked(it.1)).map(|(name, _)| name.to_owned()))
}

impl Figure for Transports {
    fn about(&self) -> About {
        About {
            id: "channels-table1",
            title: "Features of transports",
            says: "InfiniBand has ordered messages of several packets; EFA and 1RMA have unordered ones of one packet",
            kind: FigureKind::Model,
            seconds: 1,
        }
    }

    fn points(&self, _: &Run<'_>) -> Result<Points, FigureFailed> {
        let mut points = Points::new(&self.about(), "as the code has it; nothing is run");
        let mut rows: Vec<Vec<String>> =
            TRANSPORTS.iter().map(|row| row.map(str::to_owned).into()).collect();
        rows.push(vec![
            "this project".to_owned(),
            names(&OpType::ALL),
            "out of order".to_owned(),
            format!("an op of up to {OP_SIZE_MAX} B, in as many packets as the MTU asks for"),
        ]);
        points.tables.push(table("", &["transport", "requests", "delivery", "messages"], rows));
        Ok(points)
    }

    fn claims(&self, _: &Points) -> Vec<Claim> {
        Vec::new()
    }

    fn picture(&self, _: &Points) -> Option<Picture> {
        None
    }
}

/// Table 2.
#[derive(Debug)]
pub(super) struct Protocols;

/// The name of how many kinds are as the crate says.
const RIGHT: &str = "kinds of 20 that are as their crate says";

/// The paper's last two columns: requests and order that a channel needs.
const fn needs(kind: Kind) -> [&'static str; 2] {
    match kind {
        Kind::SendRecvNormal | Kind::SendRecvShared | Kind::SendRecvBufferless => ["Send", "no"],
        Kind::WriteSlotDetached | Kind::RingDetached => ["Write", "messages"],
        Kind::WriteSlotInlined | Kind::RingWithZeroing => ["Write", "bytes"],
        Kind::WriteSlotImmediate | Kind::RingImmediate => ["Write", "no"],
        Kind::WriteSlotReserve | Kind::ReadSlotIndirect => ["Write", "depends"],
        Kind::RingWithoutZeroing => ["Write", "messages, bytes"],
        Kind::SharedRingImmediate => ["Write, Atomic", "no"],
        Kind::SharedRingWithZeroing => ["Write, Atomic", "bytes"],
        Kind::ReadSlotDetached
        | Kind::ReadSlotInlined
        | Kind::ReadSlotNotify
        | Kind::ReadRingDetached
        | Kind::ReadRingInlined
        | Kind::ReadRingNotify => ["Read", "no"],
    }
}

/// The means by which ours keeps the order that the paper needs: our transport has none.
fn in_place_of_order(kind: Kind) -> &'static str {
    match needs(kind)[1] {
        "no" => "not needed",
        "messages" => "no; the bell is issued when the bytes are there",
        "messages, bytes" => {
            "no; a run is one ordered WRITE, or its bell is issued when its bytes are there"
        }
        "depends" => "no; an op is issued when the one before it is done",
        _ => "no; an ordered WRITE: its last word lands last",
    }
}

/// The word that tells a second form of a kind from the first.
const fn form(kind: Kind, is_second: bool) -> &'static str {
    match kind {
        Kind::WriteSlotDetached if is_second => " (a bell that wakes)",
        Kind::ReadSlotIndirect if is_second => " (buffers offered before)",
        _ => "",
    }
}

impl Protocols {
    fn row(line: &Line, is_second: bool) -> Vec<String> {
        let Line { kind, cells, op_types } = line;
        let mut cells: Vec<String> = cells.split('|').map(|it| it.trim().to_owned()).collect();
        if let Some(name) = cells.first_mut() {
            name.push_str(form(*kind, is_second));
        }
        let [requests, order] = needs(*kind);
        let ours = [
            format!("{requests}; {order}"),
            names(op_types),
            permissions(op_types),
            in_place_of_order(*kind).to_owned(),
        ];
        // The reason stays last.
        let reason = cells.pop();
        cells.into_iter().chain(ours).chain(reason).collect()
    }
}

impl Figure for Protocols {
    fn about(&self) -> About {
        About {
            id: "channels-table2",
            title: "What channels offer and cost, and what they need",
            says: "twenty protocols, by half round trips, requests, features, memory, and what the transport must offer",
            kind: FigureKind::Simulation,
            seconds: 2,
        }
    }

    fn points(&self, _: &Run<'_>) -> Result<Points, FigureFailed> {
        let conditions = "counted in virtual time, one hop a frame, messages of 8, 64 and 4000 B; HRT: half round trips; Req: requests \
                          of sender / receiver a message; B: blocking; Z: zero-copy of sender / receiver; V: variable size";
        let mut points = Points::new(&self.about(), conditions);
        let Table2 { rows, right, .. } = Table2::measured();
        let mut heads: Vec<&str> =
            COLUMNS.trim_start_matches('#').split('|').map(str::trim).collect();
        let reason = heads.pop();
        heads.extend(["paper needs", "ours: ops", "ours: permissions", "ours: order"]);
        heads.extend(reason);
        let mut seen = BTreeSet::new();
        let rows = rows.iter().map(|line| Self::row(line, !seen.insert(line.kind))).collect();
        points.tables.push(table("", &heads, rows));
        points.number(RIGHT, right as f64, "kinds");
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let claim = |right| {
            Claim::at_least(
                "channels-table2-rows",
                "each of the twenty offers and costs what its crate says of it, which is the paper's row or has a reason",
                RIGHT,
                right,
                Kind::ALL.len() as f64,
            )
        };
        points.value(RIGHT).map(claim).into_iter().collect()
    }

    fn picture(&self, _: &Points) -> Option<Picture> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_that_is_not_as_its_crate_says_is_too_many() {
        let holds = |right| {
            let mut points = Points::new(&Protocols.about(), "");
            points.number(RIGHT, right, "");
            Protocols.claims(&points)[0].holds
        };
        assert!(holds(20.0) && !holds(19.0));
    }
}
