//! The choice of a packet's queue.

use super::{Answer, Answered, Subject};
use crate::setting::Setting;

/// Addresses and ports of both sides, as `ethtool -N` names them.
const ALL: &str = "sdfn";
const ONE_ENGINE: &str = "one engine has all queues";

pub(super) fn fields(subject: &Subject<'_>) -> Answered {
    if subject.wanted.engines < 2 {
        return Ok(Answer::does_not_apply(ONE_ENGINE));
    }
    let Some(fields) = subject.interface.rss_fields.get()? else {
        return Ok(Answer::does_not_apply("the driver has no hash"));
    };
    let families = [("udp4", &fields.udp4, false), ("udp6", &fields.udp6, true)];
    let short: Vec<_> = families.iter().filter(|it| it.1 != ALL).collect();
    let (Some(first), name) = (short.first(), subject.name()) else { return Ok(Answer::ok(ALL)) };
    let command =
        |it: &&(&str, &String, bool)| format!("ethtool -N {name} rx-flow-hash {} {ALL}", it.0);
    let commands: Vec<String> = short.iter().map(command).collect();
    let answer = Answer::mend(format!("{:?} for {}", first.1, first.0))
        .wanted(ALL)
        .command(commands.join("; "));
    Ok(short.iter().fold(answer, |answer, it| {
        let interface = subject.interface.name.clone();
        answer.setting(Setting::RssFields { interface, ipv6: it.2 })
    }))
}

pub(super) fn table(subject: &Subject<'_>) -> Answered {
    let engines = subject.wanted.engines;
    if engines < 2 {
        return Ok(Answer::does_not_apply(ONE_ENGINE));
    }
    let Some(table) = subject.interface.rss_table.get()? else {
        return Ok(Answer::does_not_apply("the driver has no table"));
    };
    let without = (0..engines).filter(|it| !table.contains(it)).count();
    let beyond = table.iter().any(|it| *it >= engines);
    Ok(if without == 0 && !beyond {
        Answer::ok(format!("over {engines} queues"))
    } else {
        let found = if without > 0 {
            format!("{without} of {engines} queues get nothing")
        } else {
            "queues that no engine has get frames".to_owned()
        };
        Answer::mend(found)
            .wanted(format!("over the first {engines} queues"))
            .command(format!("ethtool -X {} equal {engines}", subject.name()))
            .setting(Setting::RssEqual {
                interface: subject.interface.name.clone(),
                queues: engines,
            })
    })
}

pub(super) fn ntuple(subject: &Subject<'_>) -> Answered {
    let Some(rules) = subject.interface.ntuple.get()? else {
        return Ok(Answer::does_not_apply("there is no device to have rules"));
    };
    let ours = format!(" port {} ", subject.wanted.port);
    let takes = |it: &&String| it.contains(&ours) || it.contains(" port any ");
    Ok(match rules.iter().find(takes) {
        None => Answer::ok("no rule for 1RMA's port"),
        Some(rule) => {
            let number = rule.split(' ').nth(1).and_then(|it| it.parse::<u32>().ok());
            let number = number.map_or_else(|| "NUMBER".to_owned(), |it| it.to_string());
            Answer::mend(rule)
                .wanted("none")
                .command(format!("ethtool -N {} delete {number}", subject.name()))
        }
    })
}
