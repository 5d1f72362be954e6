//! The ports of hosts, keys and sessions.

use super::{Answer, Answered, Wanted};
use crate::snapshot::{Machine, Socket};

pub(super) fn port(machine: &Machine, wanted: &Wanted) -> Answered {
    taken(machine, Socket { tcp: false, port: wanted.port })
}

pub(super) fn session_port(machine: &Machine, wanted: &Wanted) -> Answered {
    taken(machine, Socket { tcp: true, port: wanted.session_port })
}

fn taken(machine: &Machine, socket: Socket) -> Answered {
    let Socket { tcp, port } = socket;
    let (name, letter) = if tcp { ("TCP", 't') } else { ("UDP", 'u') };
    Ok(if machine.sockets.get()?.contains(&socket) {
        Answer::mend(format!("{name} port {port} is in use"))
            .wanted("free, unless it is a host of ours that has it")
            .command(format!("ss -{letter}lpn 'sport = :{port}'"))
    } else {
        Answer::ok(format!("{name} port {port} is free"))
    })
}

pub(super) fn firewall(machine: &Machine, wanted: &Wanted) -> Answered {
    let rules = machine.firewall.get()?;
    let counts = |rule: &&String| {
        wanted.udp || rule.contains("hook input") || rule.contains(&wanted.session_port.to_string())
    };
    Ok(match rules.iter().find(counts) {
        Some(rule) => Answer::mend(rule)
            .wanted(format!("TCP port {} open", wanted.session_port))
            .command("nft -a list ruleset"),
        None => Answer::ok("no rule drops these ports"),
    })
}
