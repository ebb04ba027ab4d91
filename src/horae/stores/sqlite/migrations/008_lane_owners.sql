-- When very many lanes are due, a claim looks into a few of each owner, those first that were looked into longest ago.
CREATE INDEX lanes_owner ON lanes (owner, next_at);
