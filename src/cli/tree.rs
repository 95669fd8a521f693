//! Drawing a conversation's links and forks as a tree by references.
//!
//! It owns the order and the shape of the picture: one column for the way to the head, branches beside it. Pure: objects
//! of the contract in, lines out. It must not know where the objects come from.

use std::collections::{BTreeMap, BTreeSet};

use bridge_protocol::conversation::Conversation;
use bridge_protocol::history::Checkpoint;
use bridge_protocol::link::{Fidelity, LineageEntry, LineageReason, Link, Relation, RollCause};
use bridge_protocol::{CheckpointId, UpstreamId};

use super::output::{ATTENTION, DIM, GOOD, Look, STRONG, cut, one_line};
use super::words;

#[cfg(test)]
mod tests;

/// How many steps of one session are drawn, the newest: a picture of them all would be a history.
const STEPS_DRAWN: usize = 5;

/// How many columns of a step's prompt are drawn.
const PROMPT_COLUMNS: usize = 40;

/// A conversation with everything that is drawn of it.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// The conversation.
    pub(super) conversation: Conversation,
    /// Its chain.
    pub(super) links: Vec<Link>,
    /// Its lineage.
    pub(super) entries: Vec<LineageEntry>,
    /// The steps of its current history, oldest first; nothing where they were not asked for or cannot be read.
    pub(super) checkpoints: Option<Vec<Checkpoint>>,
    /// The conversations that branched off it, oldest first.
    pub(super) forks: Vec<Family>,
    /// Whether it is the one that was asked for, where the picture shows more than what came of it.
    pub(super) asked_for: bool,
}

/// One upstream session as it is drawn.
#[derive(Debug)]
struct Node<'a> {
    reason: LineageReason,
    relation: Relation,
    from: Option<&'a UpstreamId>,
    from_checkpoint: Option<&'a CheckpointId>,
    cause: Option<RollCause>,
    fidelity: Fidelity,
    turns: u64,
    carried: u64,
    in_chain: bool,
    abandoned: bool,
}

/// The signs that a tree is made of.
#[derive(Clone, Copy)]
struct Signs {
    link: &'static str,
    head: &'static str,
    branch: &'static str,
    last: &'static str,
    down: &'static str,
    blank: &'static str,
}

/// The lines of the picture, the conversation first.
pub(super) fn draw(family: &Family, look: Look) -> Vec<String> {
    let mut lines = vec![heading(family, None, look)];
    Column::new(family, 0, look).draw(&mut lines, "");
    lines
}

fn signs(look: Look) -> Signs {
    if look.unicode {
        Signs {
            link: "○",
            head: "●",
            branch: "├─",
            last: "└─",
            down: "│ ",
            blank: "  ",
        }
    } else {
        Signs {
            link: "o",
            head: "*",
            branch: "|-",
            last: "`-",
            down: "| ",
            blank: "  ",
        }
    }
}

/// The line of a conversation; of a fork with the step of its parent that it left behind, where that is known.
fn heading(family: &Family, behind: Option<u64>, look: Look) -> String {
    let conversation = &family.conversation;
    let id = look.paint(STRONG, &words::short_id(conversation.id));
    let title = one_line(&conversation.title);
    let title = if title.is_empty() {
        String::new()
    } else {
        format!(" {title:?}")
    };
    let about = format!("{}, {}", conversation.agent, words::state(conversation.state));
    let behind = behind.map_or_else(String::new, |step| format!(", forked behind step {step}"));
    let asked_for = if family.asked_for {
        format!("  {}", look.paint(ATTENTION, "<- asked for"))
    } else {
        String::new()
    };
    format!(
        "conversation {id}{title} {}{behind}{asked_for}",
        look.paint(DIM, &format!("({})", one_line(&about)))
    )
}

/// One conversation's sessions, by reference.
struct Column<'a> {
    look: Look,
    signs: Signs,
    head: Option<&'a UpstreamId>,
    nodes: BTreeMap<&'a UpstreamId, Node<'a>>,
    checkpoints: &'a [Checkpoint],
    /// The steps that each session holds, oldest first.
    steps: BTreeMap<&'a UpstreamId, Vec<&'a Checkpoint>>,
    /// The last of the steps that stand in the parent's part of the picture already.
    drawn: u64,
    /// Sessions that came from no other one of this conversation, oldest first.
    roots: Vec<&'a UpstreamId>,
    children: BTreeMap<&'a UpstreamId, Vec<&'a UpstreamId>>,
    /// The way from a root to the head.
    trunk: BTreeSet<&'a UpstreamId>,
    forks: BTreeMap<&'a UpstreamId, Vec<&'a Family>>,
    /// Conversations that branched off before there was a session, or off one that is not known.
    loose_forks: Vec<&'a Family>,
}

impl<'a> Column<'a> {
    fn new(family: &'a Family, drawn: u64, look: Look) -> Self {
        let (nodes, order) = nodes(family);
        let head = family.links.last().map(|link| &link.upstream_id);

        let mut roots = Vec::new();
        let mut children: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for id in order {
            match nodes.get(id).and_then(|node| node.from) {
                Some(from) if nodes.contains_key(from) && !leads_to(&nodes, from, id) => {
                    children.entry(from).or_default().push(id);
                }
                _ => roots.push(id),
            }
        }

        let mut trunk = BTreeSet::new();
        let mut at = head;
        while let Some(id) = at {
            if !trunk.insert(id) {
                break;
            }
            at = nodes.get(id).and_then(|node| node.from);
        }

        let mut forks: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut loose_forks = Vec::new();
        for fork in &family.forks {
            let origin = fork
                .entries
                .iter()
                .find_map(|entry| entry.from_upstream_id.as_ref())
                .and_then(|from| nodes.get_key_value(from));
            match origin {
                Some((from, _)) => forks.entry(*from).or_default().push(fork),
                None => loose_forks.push(fork),
            }
        }
        let mut steps: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let checkpoints = family.checkpoints.as_deref().unwrap_or_default();
        for checkpoint in checkpoints {
            steps.entry(&checkpoint.upstream_id).or_default().push(checkpoint);
        }
        Self {
            look,
            signs: signs(look),
            head,
            nodes,
            checkpoints,
            steps,
            drawn,
            roots,
            children,
            trunk,
            forks,
            loose_forks,
        }
    }

    fn draw(&self, lines: &mut Vec<String>, indent: &str) {
        self.draw_lent(lines, indent);
        for root in &self.roots {
            self.draw_down(lines, indent, root);
        }
        let count = self.loose_forks.len();
        for (index, fork) in self.loose_forks.iter().enumerate() {
            self.draw_fork(lines, indent, fork, index + 1 == count);
        }
    }

    /// Steps that stand in sessions of other conversations: a fork by reference has no copy of them.
    fn draw_lent(&self, lines: &mut Vec<String>, indent: &str) {
        let lent = self.steps.iter().filter(|(id, _)| !self.nodes.contains_key(*id));
        let mut lent: Vec<_> = lent
            .filter_map(|(id, steps)| Some((steps.first()?.step, steps.last()?.step, id)))
            .collect();
        lent.sort_unstable();
        for (first, last, id) in lent {
            let steps = match first == last {
                true => format!("step {first} stands"),
                false => format!("steps {first} to {last} stand"),
            };
            let session = one_line(&words::short(id.as_str()));
            let line = format!("{steps} in session {session}");
            lines.push(format!("{indent}{}", self.look.paint(DIM, &line)));
        }
    }

    /// The newest steps of a session, as `--at` takes them.
    fn draw_steps(&self, lines: &mut Vec<String>, before: &str, id: &UpstreamId) {
        let steps = self.steps.get(id).map_or(&[][..], Vec::as_slice);
        let drawn = steps
            .iter()
            .take_while(|checkpoint| checkpoint.step <= self.drawn);
        let more = drawn.count().max(steps.len().saturating_sub(STEPS_DRAWN));
        if more > 0 {
            let dots = self.look.sign("…", "...");
            let line = self.look.paint(DIM, &format!("{dots} {more} more"));
            lines.push(format!("{before}  {line}"));
        }
        for checkpoint in steps.iter().skip(more) {
            let prompt = match one_line(&checkpoint.prompt) {
                // A picture, say.
                empty if empty.is_empty() => "[no text]".to_owned(),
                prompt => format!("\"{}\"", cut(&prompt, PROMPT_COLUMNS, self.look)),
            };
            let line = format!("step {} {prompt}", checkpoint.step);
            lines.push(format!("{before}  {}", self.look.paint(DIM, &line)));
        }
    }

    /// Draws a session, what branches off it beside it, and the session that goes on from it below it.
    fn draw_down(&self, lines: &mut Vec<String>, indent: &str, start: &'a UpstreamId) {
        let mut next = Some(start);
        while let Some(id) = next {
            lines.push(format!("{indent}{}", self.node_line(id)));
            let children = self.children.get(id).map_or(&[][..], Vec::as_slice);
            let goes_on = children
                .iter()
                .find(|child| self.trunk.contains(*child))
                .or(children.last())
                .copied();
            let beside: Vec<_> = children
                .iter()
                .copied()
                .filter(|child| Some(*child) != goes_on)
                .collect();
            let forks = self.forks.get(id).map_or(&[][..], Vec::as_slice);
            let mut left = beside.len() + forks.len();
            let before = match goes_on.is_some() || left > 0 {
                true => self.signs.down,
                false => self.signs.blank,
            };
            self.draw_steps(lines, &format!("{indent}{before}"), id);
            for child in beside {
                left -= 1;
                let (branch, deeper) = self.branch(indent, left == 0 && goes_on.is_none());
                let first = lines.len();
                self.draw_down(lines, &deeper, child);
                if let Some(line) = lines.get_mut(first) {
                    *line = format!("{branch}{}", line.strip_prefix(&deeper).unwrap_or(line));
                }
            }
            for fork in forks {
                left -= 1;
                self.draw_fork(lines, indent, fork, left == 0 && goes_on.is_none());
            }
            next = goes_on;
        }
    }

    fn draw_fork(&self, lines: &mut Vec<String>, indent: &str, fork: &Family, last: bool) {
        let (branch, deeper) = self.branch(indent, last);
        let place = fork.conversation.parent.as_ref();
        let place = place.and_then(|parent| parent.checkpoint_id.as_ref());
        // The parent may have gone back since, and the fork too.
        let in_parent = place.and_then(|place| step_of(place, self.checkpoints));
        let in_fork = || step_of(place?, fork.checkpoints.as_deref()?);
        let heading = heading(fork, in_parent.or_else(in_fork), self.look);
        lines.push(format!("{branch}{heading}"));
        Column::new(fork, in_parent.unwrap_or_default(), self.look).draw(lines, &deeper);
    }

    /// What stands before the first line of a branch, and before its further lines.
    fn branch(&self, indent: &str, last: bool) -> (String, String) {
        if last {
            (
                format!("{indent}{}", self.signs.last),
                format!("{indent}{}", self.signs.blank),
            )
        } else {
            (
                format!("{indent}{}", self.signs.branch),
                format!("{indent}{}", self.signs.down),
            )
        }
    }

    fn node_line(&self, id: &UpstreamId) -> String {
        let is_head = self.head == Some(id);
        let sign = if is_head {
            self.look.paint(GOOD, self.signs.head)
        } else {
            self.signs.link.to_owned()
        };
        let mut parts = Vec::new();
        if let Some(node) = self.nodes.get(id) {
            let mut how = words::reason(node.reason).to_owned();
            let is_branch = matches!(node.reason, LineageReason::Forked | LineageReason::Edited);
            // Where another conversation was left is told with this one's name.
            let place = node
                .from_checkpoint
                .filter(|_| is_branch && node.from.is_some_and(|from| self.nodes.contains_key(from)));
            if let Some(step) = place.and_then(|place| step_of(place, self.checkpoints)) {
                how.push_str(&format!(" behind step {step}"));
            }
            if let Some(cause) = node.cause {
                how.push_str(&format!(" ({})", words::cause(cause)));
            }
            parts.push(how);
            if node.relation != Relation::Fresh {
                parts.extend(words::relation(node.relation, node.carried).map(str::to_owned));
                parts.push(words::fidelity(node.fidelity).to_owned());
            }
            parts.push(words::turns(node.carried, node.turns));
            if node.abandoned {
                parts.push("abandoned".to_owned());
            } else if !node.in_chain {
                parts.push("no longer in the chain".to_owned());
            }
        }
        let mut line = format!(
            "{sign} {} {}",
            self.look.paint(DIM, &one_line(&words::short(id.as_str()))),
            parts.join(", ")
        );
        if is_head {
            line.push_str(&format!("  {}", self.look.paint(ATTENTION, "<- head")));
        }
        line
    }
}

/// The number of a place in a history that holds it, or a copy of it.
fn step_of(place: &CheckpointId, checkpoints: &[Checkpoint]) -> Option<u64> {
    let is_it =
        |checkpoint: &&Checkpoint| checkpoint.id == *place || checkpoint.origin.as_ref() == Some(place);
    checkpoints.iter().find(is_it).map(|checkpoint| checkpoint.step)
}

/// The sessions of a conversation and the order in which they first came. What the chain says goes before the lineage.
fn nodes(family: &Family) -> (BTreeMap<&UpstreamId, Node<'_>>, Vec<&UpstreamId>) {
    let mut nodes: BTreeMap<&UpstreamId, Node<'_>> = BTreeMap::new();
    let mut order = Vec::new();
    for entry in &family.entries {
        let id = &entry.upstream_id;
        if id.is_empty() || matches!(entry.reason, LineageReason::Reset | LineageReason::Deleted) {
            continue;
        }
        let node = nodes.entry(id).or_insert_with(|| {
            order.push(id);
            Node {
                reason: entry.reason,
                relation: entry.relation,
                from: entry.from_upstream_id.as_ref(),
                from_checkpoint: entry.from_checkpoint_id.as_ref(),
                cause: entry.cause,
                fidelity: entry.fidelity,
                turns: entry.turns,
                carried: entry.carried_turns,
                in_chain: false,
                abandoned: false,
            }
        });
        node.turns = node.turns.max(entry.turns);
        node.carried = node.carried.max(entry.carried_turns);
        match entry.reason {
            LineageReason::Updated => {}
            LineageReason::Abandoned => node.abandoned = true,
            reason => {
                node.reason = reason;
                node.relation = entry.relation;
                node.from = entry.from_upstream_id.as_ref();
                node.from_checkpoint = entry.from_checkpoint_id.as_ref();
                node.cause = entry.cause;
                node.fidelity = entry.fidelity;
                node.abandoned = false;
            }
        }
    }
    for link in &family.links {
        if let Some(node) = nodes.get_mut(&link.upstream_id) {
            node.in_chain = true;
            node.turns = link.turns;
            node.carried = link.carried_turns;
        }
    }
    // A fresh session came from nowhere, whatever stood before it.
    for node in nodes.values_mut() {
        if node.relation == Relation::Fresh {
            node.from = None;
        }
    }
    (nodes, order)
}

/// Whether climbing from `start` comes past `goal`: a reference in a circle, which is drawn as a root.
fn leads_to(nodes: &BTreeMap<&UpstreamId, Node<'_>>, start: &UpstreamId, goal: &UpstreamId) -> bool {
    let mut seen = BTreeSet::new();
    let mut at = Some(start);
    while let Some(id) = at {
        if id == goal {
            return true;
        }
        if !seen.insert(id) {
            return false;
        }
        at = nodes.get(id).and_then(|node| node.from);
    }
    false
}
