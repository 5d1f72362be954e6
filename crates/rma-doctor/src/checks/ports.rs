//! The ports of hosts, keys and sessions.

use super::{Answer, Answered, Wanted};
use crate::snapshot::{Machine, Socket, Unseen};

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
    let names = |rule: &&String, port: u16| {
        let mut words = rule.split(|it: char| !it.is_ascii_alphanumeric());
        rule.contains("dport") && words.any(|it| it == port.to_string())
    };
    let ours =
        |rule: &&String| names(rule, wanted.session_port) || wanted.udp && names(rule, wanted.port);
    if let Some(rule) = rules.iter().find(ours) {
        return Ok(Answer::mend(rule)
            .wanted(format!("TCP port {} open", wanted.session_port))
            .command("nft -a list ruleset"));
    }
    match rules.iter().find(|it| !it.contains("dport")) {
        None => Ok(Answer::ok("no rule drops these ports")),
        Some(rule) => Err(Unseen(format!(
            "rules are not followed here, and one may drop them ({rule}): `nft list ruleset`"
        ))),
    }
}
