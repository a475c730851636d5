CREATE TABLE worker (id INTEGER PRIMARY KEY, manager INT REFERENCES WORKER (id), team INT REFERENCES team);
CREATE TABLE team (id INTEGER PRIMARY KEY, lead INTEGER NOT NULL REFERENCES worker (id));
CREATE TABLE category (id INTEGER PRIMARY KEY, over INTEGER NOT NULL REFERENCES category (id));
CREATE TABLE office (id INTEGER PRIMARY KEY);
CREATE TABLE visit (id INTEGER PRIMARY KEY, office INTEGER REFERENCES office (id));
INSERT INTO office VALUES (4), (10);  -- which the second state lacks
CREATE TABLE membership (worker_id INTEGER REFERENCES worker (id), category_id INTEGER REFERENCES category (id));
