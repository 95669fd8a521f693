//! The effects of one input, in the order in which they are carried out. Pure.

use bridge_protocol::event::Event;

use super::Effect;

/// Effects in the order in which they are to be carried out. Answers are kept apart because everything else that one
/// input causes comes before them: a turn's events precede the answer to its prompt.
#[derive(Debug)]
pub struct Effects<R> {
    list: Vec<Effect<R>>,
    answers: Vec<Effect<R>>,
    ends: bool,
}

impl<R> Default for Effects<R> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            answers: Vec::new(),
            ends: false,
        }
    }
}

impl<R> Effects<R> {
    /// Adds an effect.
    pub fn push(&mut self, effect: Effect<R>) {
        match effect {
            Effect::Answer(..) => self.answers.push(effect),
            Effect::End => self.ends = true,
            other => self.list.push(other),
        }
    }

    /// Adds an event.
    pub fn emit(&mut self, event: Event) {
        self.list.push(Effect::Emit(event));
    }

    /// Everything but the answers, then the answers and, behind them, the end.
    pub fn into_parts(mut self) -> (Vec<Effect<R>>, Vec<Effect<R>>) {
        if self.ends {
            self.answers.push(Effect::End);
        }
        (self.list, self.answers)
    }

    /// Whether nothing is to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.answers.is_empty() && !self.ends
    }
}
